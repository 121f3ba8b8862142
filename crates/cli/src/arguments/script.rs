//! The options of a trial whose clients speak a protocol that is told on the command line.

use crate::outcome::Failure;
use crate::workload::first_given;
use clap::Args;
use sockdrawer_catalog::dialogue::{Reply, Template};
use sockdrawer_trial::{Broadcast, Script};
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// A protocol of one's own, in the place of `--workload`.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Your protocol")]
pub(crate) struct ScriptArguments {
    /// The question to ask, with the escapes \r \n \t \0 \\ and \xNN: 'PING {n}\n'; {n} is a number that no other question has.
    ///
    /// In the place of --workload; see [your own protocol](#your-own-protocol). With --expect.
    #[arg(long, value_name = "S", requires = "expect", conflicts_with_all = ["workload", "path"])]
    pub(crate) send: Option<Template>,
    /// The answer to expect: bytes with these escapes, or a regular expression between slashes; {n} must be the question's number:
    /// 'PONG {n}\n'.
    #[arg(long, value_name = "S", requires = "send")]
    pub(crate) expect: Option<Reply>,
    /// Bytes to send once, at the beginning of each connection: 'AUTH secret\n'.
    #[arg(long, value_name = "S", requires = "send")]
    pub(crate) connect_send: Option<Template>,
    /// The answer to wait for at the beginning of each connection, to --connect-send or as a greeting [default: none].
    #[arg(long, value_name = "S", requires = "send")]
    pub(crate) connect_expect: Option<Reply>,
    /// A file of several exchanges, in the place of these options: a line for each, with > before what is sent and < before its answer.
    ///
    /// Lines with >> and << are for the beginning of a connection.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["send", "expect", "connect_send", "connect_expect", "workload", "path"])]
    pub(crate) exchanges: Option<PathBuf>,
    /// Connections that stay publish this again and again, and hear each other: 'PUB news {n}\n'; {n} is a number that no other message has.
    ///
    /// In the place of their questions; see [clients that hear each other](#clients-that-hear-each-other). With --publish-expect, and --kept 2
    /// at least.
    #[arg(long, value_name = "S", requires = "publish_expect")]
    pub(crate) publish: Option<Template>,
    /// The message that all of them hear then, with its number: 'MSG news {n}\n'.
    #[arg(long, value_name = "S", requires = "publish")]
    pub(crate) publish_expect: Option<Reply>,
    /// Sent once by each of them before, to subscribe: 'SUB news\n'.
    #[arg(long, value_name = "S", requires = "publish")]
    pub(crate) subscribe: Option<Template>,
    /// The answer to --subscribe: from then on the client has to hear all that is published [default: that of --connect-expect].
    #[arg(long, value_name = "S", requires = "publish")]
    pub(crate) subscribe_expect: Option<Reply>,
}

impl ScriptArguments {
    /// Returns the first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_given([
            ("--send", self.send.is_some()),
            ("--expect", self.expect.is_some()),
            ("--connect-send", self.connect_send.is_some()),
            ("--connect-expect", self.connect_expect.is_some()),
            ("--exchanges", self.exchanges.is_some()),
            ("--publish", self.publish.is_some()),
            ("--publish-expect", self.publish_expect.is_some()),
            ("--subscribe", self.subscribe.is_some()),
            ("--subscribe-expect", self.subscribe_expect.is_some()),
        ])
    }

    /// Makes the exchanges of these options, if any is given. `usage` tells a mistake of the command line.
    ///
    /// # Errors
    /// When the options do not go together, or the file cannot be read.
    pub(crate) fn script(&self, usage: fn(&dyn fmt::Display) -> Failure) -> Result<Option<Script>, Failure> {
        if let Some(path) = &self.exchanges {
            let wrong = |why: &dyn fmt::Display| usage(&format_args!("--exchanges {}: {why}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| wrong(&format_args!("{error}: name a file of exchanges")))?;
            return text.parse().map(Some).map_err(|error| wrong(&error));
        }
        let (Some(send), Some(expect)) = (&self.send, &self.expect) else { return Ok(None) };
        let first = (self.connect_send.clone(), self.connect_expect.clone());
        Script::new(first, send.clone(), expect.clone()).map(Some).map_err(|error| usage(&error))
    }

    /// Makes the messages of clients that hear each other, if there are to be some; their connections begin as those of `script`.
    ///
    /// # Errors
    /// When the options do not go together.
    pub(crate) fn broadcast(
        &self,
        script: &Script,
        usage: fn(&dyn fmt::Display) -> Failure,
    ) -> Result<Option<Broadcast>, Failure> {
        let (Some(publish), Some(message)) = (&self.publish, &self.publish_expect) else { return Ok(None) };
        let subscribe = (self.subscribe.clone(), self.subscribe_expect.clone());
        script.broadcast(subscribe, publish.clone(), message.clone()).map(Some).map_err(|error| usage(&error))
    }
}

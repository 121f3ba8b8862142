//! The options that several workloads share.

use crate::names::Protocol::{self, Acks, Echo, Http, Ping};
use crate::outcome::Failure;
use crate::values::{Bytes, positive_time, rate, size, time};
use clap::Args;
use sockdrawer_catalog::dialogue::Expect;
use std::fmt;
use std::time::Duration;

/// What an operation is, and when it begins.
#[derive(Debug, Args)]
pub(crate) struct OperationArguments {
    /// Operations per second of all connections, on schedule whatever the server does. ping, echo: questions; acks: messages; http: requests on kept
    /// connections, or connections begun, at most -c at once [default: as fast as possible; of ping by its interval].
    ///
    /// Not with --interval; http on connections that are not kept: not with --connect-rate. With --stage it is the rate of the most connections, and
    /// of fewer that much less.
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with = "interval")]
    pub(crate) rate: Option<f64>,
    /// The time from an operation of a connection to the next; 0: back to back [default: 1s for ping, up to 5s with more than
    /// 5000 connections; 0 for the others].
    ///
    /// Not for hello, and for http on kept connections only. For ping with more than 5,000 connections: as many whole seconds as make 5,000
    /// pings/s of all, 5 s at most.
    #[arg(long, value_name = "T", value_parser = time)]
    pub(crate) interval: Option<Duration>,
    /// The timeout of a connect or an operation [default: 1s for ping and echo, 30s for hello, http
    /// and acks].
    #[arg(long, value_name = "T", value_parser = positive_time)]
    pub(crate) timeout: Option<Duration>,
    /// echo, acks: bytes of a message, for acks without its header; k is 1,024, m is 1,048,576 [default: 4 for echo, 5 for acks].
    ///
    /// For acks at most 1,000,000, without the 12 bytes of the header.
    #[arg(help_heading = "ping, echo and acks", long, value_name = "B", value_parser = size)]
    pub(crate) size: Option<u32>,
    /// ping, echo: the bytes to send, with the escapes \r \n \t \0 \\ and \xNN: 'PING\r\n'.
    ///
    /// With TARGET, in the place of the bytes of the workload; see [your own questions](#your-own-questions). Not with --size.
    #[arg(help_heading = "ping, echo and acks", long, value_name = "S", conflicts_with = "size")]
    pub(crate) send: Option<Bytes>,
    /// The answer to expect: bytes with these escapes, or a regular expression between slashes: '/:[0-9]+\r\n/' [default:
    /// the first bytes that come].
    #[arg(help_heading = "ping, echo and acks", long, value_name = "S")]
    pub(crate) expect: Option<Expect>,
}

impl OperationArguments {
    /// Returns the options that not every workload has: for each, true where it was given, and the workloads that have it.
    pub(crate) fn owned(&self) -> [(&'static str, bool, &'static [Protocol]); 5] {
        [
            ("--size", self.size.is_some(), &[Echo, Acks]),
            ("--interval", self.interval.is_some(), &[Ping, Echo, Acks, Http]),
            ("--rate", self.rate.is_some(), &[Ping, Echo, Acks, Http]),
            ("--send", self.send.is_some(), &[Ping, Echo]),
            ("--expect", self.expect.is_some(), &[Ping, Echo]),
        ]
    }
}

/// Returns the first of these options that was given.
pub(crate) fn first_given<const N: usize>(options: [(&'static str, bool); N]) -> Option<&'static str> {
    options.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
}

/// Makes the failure of a faulty command line of `load`.
pub(crate) fn usage(line: impl fmt::Display) -> Failure {
    Failure::usage_of("sockdrawer load", line)
}

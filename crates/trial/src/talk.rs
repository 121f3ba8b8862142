//! A dialogue of a client as it is told where something unexpected comes: the request, and the beginning of what came.

use super::clients::PATIENCE;
use super::exchange::{Dialogue, Judgement};
use super::script::SHOWN;
use sockdrawer::Context;
use sockdrawer_catalog::escapes;

/// A dialogue, with the beginnings of the request under way and of what came of its answer.
pub(crate) struct Talk<D> {
    pub(crate) dialogue: D,
    sent: Vec<u8>,
    pub(crate) in_pieces: bool,
    came: Vec<u8>,
}

impl<D: Dialogue> Talk<D> {
    pub(crate) fn new(dialogue: D) -> Talk<D> {
        Talk { dialogue, sent: Vec::new(), in_pieces: false, came: Vec::new() }
    }

    pub(crate) fn ask(&mut self, cx: &mut Context<'_>) {
        self.ask_by(|bytes| cx.send(bytes));
        cx.set_timer(PATIENCE);
    }

    pub(crate) fn ask_by(&mut self, mut send: impl FnMut(&[u8])) {
        self.sent.clear();
        self.came.clear();
        self.in_pieces = false;
        let sent = &mut self.sent;
        self.dialogue.ask(&mut |bytes| {
            keep(sent, bytes);
            send(bytes);
        });
    }

    pub(crate) fn judge(&mut self, came: &[u8]) -> Judgement {
        keep(&mut self.came, came);
        self.dialogue.judge(came)
    }

    /// Describes the answer under way, of which `came` says how it came.
    pub(crate) fn describe(&self, how: &str) -> String {
        let pieces = if self.in_pieces { ", which was sent in two pieces," } else { "" };
        let sent = || format!("after `{}`{pieces}", escapes::format(&self.sent));
        let after = if self.sent.is_empty() { "at the beginning".to_owned() } else { sent() };
        let came = if self.came.is_empty() { "nothing".to_owned() } else { format!("`{}`", escapes::format(&self.came)) };
        self.dialogue.describe(&after, &format!("{how}{came}"))
    }

    pub(crate) fn late(&self) -> String {
        self.describe(&format!("within {PATIENCE:?} "))
    }

    /// Describes what came behind the answer.
    pub(crate) fn surplus(&self, bytes: &[u8]) -> String {
        let (sent, came) = (escapes::format(&self.sent), escapes::format(&bytes[..bytes.len().min(SHOWN)]));
        format!("after the answer to `{sent}` nothing was expected, and `{came}` came")
    }
}

/// Adds bytes to a beginning of which no more is shown.
fn keep(beginning: &mut Vec<u8>, bytes: &[u8]) {
    beginning.extend(bytes.iter().take(SHOWN - beginning.len()));
}

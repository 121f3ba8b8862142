//! Phases of a connection: it is in one at a time, and one table says for each what else may happen.

use crate::observe::ConnectionState;

/// A connection's phase. What may hold in several phases is a flag: see [`Flags`](super::slot::Flags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The protocol is served by this loop. The only phase in which input is read for the protocol: 0, so that flags and phase are tested
    /// by one comparison.
    Open,
    /// The handshake is under way; there is no protocol yet.
    Connecting,
    /// The connection is leased as soon as all output is sent.
    Delegating,
    /// Other code reads and writes the socket.
    Leased,
    /// The bytes of the connection go to another, and that one's to it.
    Relayed,
    /// Offered to another process: nothing happens to it here, but for its end.
    Frozen,
    /// The protocol is gone; what is left is sent.
    Flushing,
    /// The protocol is gone and all is sent; input is discarded until the peer's end.
    Lingering,
    /// Counted as cut, and closing its socket sends a reset: nothing else happens to it any more.
    Cut,
    /// No connection has the slot.
    Empty,
}

/// A connection whose end is under way stays in the old process of an upgrade for this reason: it is neither lost nor left behind.
pub(crate) const ENDING: &str = "ending";

/// Meaning of a phase.
pub(crate) struct Row {
    phase: Phase,
    /// A protocol runs on it, and hears of the end.
    pub(crate) protocol: bool,
    /// The protocol is called before the end, too.
    pub(crate) called: bool,
    /// A cut takes something from the peer, whatever else is known.
    pub(crate) owes: bool,
    /// Reason why it is neither adopted nor moves to another process, to be read behind "it is".
    pub(crate) stays: Option<&'static str>,
    /// Name in lists, where flags do not say more.
    pub(crate) name: Option<ConnectionState>,
}

impl Row {
    /// Makes the row of a phase without a protocol, and without a name in lists.
    const fn over(phase: Phase, stays: &'static str) -> Row {
        Row { phase, protocol: false, called: false, owes: false, stays: Some(stays), name: None }
    }
}

/// Rows in the order of the phases.
pub(super) static PHASES: [Row; 10] = TABLE;

const TABLE: [Row; 10] = {
    use Phase::{Connecting, Cut, Delegating, Empty, Flushing, Frozen, Leased, Lingering, Open, Relayed};
    let connecting = Some(ConnectionState::Connecting);
    let delegated = Some(ConnectionState::Delegated);
    [
        Row { phase: Open, protocol: true, called: true, owes: false, stays: None, name: None },
        Row { phase: Connecting, protocol: false, called: false, owes: false, stays: Some("connecting"), name: connecting },
        Row {
            phase: Delegating,
            protocol: true,
            called: true,
            owes: true,
            stays: Some("in the hands of other code"),
            name: delegated,
        },
        Row {
            phase: Leased,
            protocol: true,
            called: false,
            owes: false,
            stays: Some("in the hands of other code"),
            name: delegated,
        },
        Row { phase: Relayed, protocol: true, called: false, owes: true, stays: None, name: None },
        Row { phase: Frozen, protocol: true, called: true, owes: false, stays: Some("offered to another process"), name: None },
        Row::over(Flushing, ENDING),
        Row::over(Lingering, ENDING),
        Row::over(Cut, ENDING),
        Row::over(Empty, "gone"),
    ]
};

// A row is found by the number of its phase.
const _: () = {
    let mut number = 0;
    while number < TABLE.len() {
        assert!(TABLE[number].phase as usize == number);
        number += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line of the reference about a phase.
    fn line(row: &Row) -> String {
        let protocol = match (row.protocol, row.called) {
            (true, true) => "is called",
            (true, false) => "hears of the end",
            (false, _) => "none",
        };
        let moves = row.stays.map_or("yes".to_owned(), |why| format!("no, it is {why}"));
        let cut = match (row.protocol, row.owes) {
            (true, true) => "reset",
            (true, false) => "reset if something is owed to the peer",
            (false, _) => "given up",
        };
        let name = row.name.map_or("by what it does".to_owned(), |name| format!("{name:?}").to_lowercase());
        format!("| {} | {protocol} | {moves} | {cut} | {name} |", format!("{:?}", row.phase).to_lowercase())
    }

    #[test]
    fn the_reference_has_the_table() {
        let reference = include_str!("../../../../docs/reference/what-survives-what.md");
        let standing = PHASES.iter().filter(|row| row.stays.is_none() || row.protocol || row.name.is_some());
        let missing: Vec<String> = standing.map(line).filter(|line| !reference.contains(line)).collect();
        assert!(missing.is_empty(), "docs/reference/what-survives-what.md lacks\n{}", missing.join("\n"));
    }
}

//! Bounds of the input that is left untaken.

use super::*;

/// Takes nothing.
struct Hoard;

impl Service for Hoard {
    type Protocol = Hoard;
    fn open(&self, _peer: &Peer) -> Hoard {
        Hoard
    }
}

impl Protocol for Hoard {
    fn received(&mut self, _input: &mut Input<'_>, _cx: &mut Context<'_>) -> Step {
        Step::Continue
    }
}

/// Records of 100 bytes.
struct Hundred;

#[derive(Default)]
struct State {
    established: bool,
}

impl Filtering for Hundred {
    type Filter = State;
    fn filter(&self, _peer: &Peer) -> State {
        State::default()
    }
    fn longest_record(&self) -> usize {
        100
    }
}

impl Filter for State {
    fn decode(&mut self, wire: &mut Input<'_>, plain: &mut Vec<u8>, _back: &mut Output) -> Result<Progress, Refused> {
        if !std::mem::replace(&mut self.established, true) {
            return Ok(Progress::Established(None));
        }
        let Some(record) = wire.exactly(100) else { return Ok(Progress::NeedMore) };
        plain.extend_from_slice(record);
        Ok(Progress::Plain)
    }
    fn encode(&mut self, _plain: &[u8], _wire: &mut Output) {}
    fn goodbye(&mut self, _wire: &mut Output) {}
}

/// Returns what becomes of a connection at the byte after `most` bytes.
fn after(most: usize, max_partial: usize, service: impl Service) -> Option<Closed> {
    let limits = Bounds { max_partial, ..Bounds::default() };
    let mut connection = Driver::open_with(service, peer(Side::Accepted, Duration::ZERO), limits);
    connection.receive(&vec![b'x'; most]);
    assert_eq!(connection.closed(), None, "{most} of {max_partial}");
    connection.receive(b"x");
    connection.closed()
}

#[test]
fn they_are_the_setting_or_a_record_if_that_is_longer() {
    assert_eq!(after(10, 10, Hoard), Some(Closed::TooLong));
    for (most, max_partial) in [(199, 10), (299, 200), (1_000_099, 1_000_000)] {
        assert_eq!(after(most, max_partial, Layer::new(Hundred, Hoard)), Some(Closed::Aborted));
        assert_eq!(after(most, max_partial, Layer::new(Hundred, Layer::new(Hundred, Hoard))), Some(Closed::Aborted));
    }
}

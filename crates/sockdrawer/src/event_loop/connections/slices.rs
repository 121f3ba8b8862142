//! The number of connections of one offer to another process.

use std::time::{Duration, Instant};

/// Connections of one offer: their sockets come along in one packet. Each waits for all of its offer.
const FEW: usize = 32;
/// The most, where offers take long because loops are busy: the number doubles up to that. A packet has room for 200 sockets.
const MANY: usize = 192;
/// The time from one offer to the next that is long.
const LONG: Duration = Duration::from_millis(1);

/// The offers of a loop: when the last was made, and how many connections it might have.
#[derive(Default)]
pub(super) struct Slices(Option<(Instant, usize)>);

impl Slices {
    /// Returns how many connections the offer that is made now may have.
    pub(super) fn next(&mut self) -> usize {
        let now = Instant::now();
        let most = self.0.filter(|(last, _)| now - *last > LONG).map_or(FEW, |(_, most)| (most * 2).min(MANY));
        self.0 = Some((now, most));
        most
    }
}

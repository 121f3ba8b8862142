//! Keys that change a run while it goes on.

pub(crate) use sockdrawer_program::keys::{Keys, listen, restore, without};

use sockdrawer_load::{Order, Orders, Progress};

/// Help for the keys in the last line of the panel, which a narrow terminal cuts at its end.
pub(crate) const HELP: &str = "q stop  + more  - fewer  space suspend  n next stage";
/// Part by which a key changes the connections, in percent of those that are wanted.
const STEP: u64 = 10;

/// Keys change a run from now on, where a person is at the terminal.
pub(crate) fn obey(orders: &Orders) -> Option<Keys> {
    let orders = orders.clone();
    listen(move |key| {
        if let Some(order) = order(key, &orders.progress()) {
            orders.give(order);
        }
    })
}

fn order(key: u8, progress: &Progress) -> Option<Order> {
    let step = usize::try_from((progress.target.saturating_mul(STEP) / 100).max(1)).unwrap_or(1);
    Some(match key {
        b'+' | b'=' => Order::More(step),
        b'-' | b'_' => Order::Fewer(step),
        b' ' if progress.suspended => Order::Resume,
        b' ' => Order::Suspend,
        b'n' => Order::NextStage,
        b'q' => Order::Stop,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_orders() {
        let press = |key, target, suspended| order(key, &Progress { target, suspended, ..Progress::default() });
        assert_eq!([press(b'+', 1_000, false), press(b'-', 5, false)], [Some(Order::More(100)), Some(Order::Fewer(1))]);
        assert_eq!([press(b' ', 9, false), press(b' ', 9, true)], [Some(Order::Suspend), Some(Order::Resume)]);
        assert_eq!([b'n', b'q', b'x'].map(|key| press(key, 9, false)), [Some(Order::NextStage), Some(Order::Stop), None]);
    }
}

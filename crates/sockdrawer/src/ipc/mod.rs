//! PROCESSES: the numbers that the processes of a pool share.

pub(crate) mod child_page;
pub(crate) mod shared_counters;

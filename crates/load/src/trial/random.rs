//! Random numbers that a seed repeats: those of the clients that the library has.

pub(crate) use sockdrawer::testing::trial::{Random, mix};

//! Lines of a plan.

use crate::values::rate_text;
use sockdrawer_catalog::time;
use std::time::Duration;
use toml::Value;

/// Lines of `key = value`.
#[derive(Default)]
pub(crate) struct Lines(pub(crate) String);

impl Lines {
    pub(crate) fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0 += &format!("{key} = {}\n", value.into());
    }

    pub(crate) fn time(&mut self, key: &str, time: Duration) {
        self.add(key, time::format(time));
    }

    /// As a number where TOML has it.
    pub(crate) fn count(&mut self, key: &str, count: u64) {
        match i64::try_from(count) {
            Ok(count) => self.add(key, count),
            Err(_) => self.add(key, count.to_string()),
        }
    }

    pub(crate) fn rate(&mut self, key: &str, rate: f64) {
        let text = rate_text(rate);
        match text.parse::<i64>() {
            Ok(whole) => self.add(key, whole),
            Err(_) => self.add(key, text),
        }
    }
}

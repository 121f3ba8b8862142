//! Where events go: to the log, to the clients of the control socket that ask for them, and to the service manager.

use crate::log::{Entry, Log};
use crate::notify::Manager;
use crate::print::PATIENCE;
use crate::{print, words};
use serde_json::{Value, json};
use sockdrawer::Group;
use sockdrawer::observe::{Counts, Event};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Where events go.
pub(crate) struct Hub {
    log: Option<Log>,
    /// Connections of the control socket.
    watching: Group,
    number: AtomicU64,
    /// Events that watching connections did not get.
    pub(crate) lost: AtomicU64,
    pub(crate) manager: Arc<Manager>,
}

impl Hub {
    pub(crate) fn new(log: Option<Log>, manager: Manager) -> Arc<Hub> {
        let (watching, number, lost) = (Group::new(), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Hub { log, watching, number, lost, manager: Arc::new(manager) })
    }

    pub(crate) fn watching(&self) -> Group {
        self.watching.clone()
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// An event of a pool.
    pub(crate) fn tell(&self, pool: &str, event: &Event) {
        self.manager.tell(event);
        // An event is an object with one key, or a word.
        let (name, data) = match serde_json::to_value(event) {
            Ok(Value::Object(map)) => map.into_iter().next().unwrap_or_default(),
            Ok(Value::String(name)) => (name, Value::Null),
            _ => (format!("{event:?}"), Value::Null),
        };
        self.emit(Some(pool), name, data, words::words(event));
    }

    /// Something that the program did, as an operator asked.
    pub(crate) fn note(&self, name: &str, data: &Value, text: impl fmt::Display) {
        self.emit(None, name.to_owned(), data.clone(), text.to_string());
    }

    /// Something that an operator is to read at once: where the log does not have it, it is a line on standard error.
    pub(crate) fn note_or_print(&self, name: &str, data: &Value, text: impl fmt::Display) {
        let text = text.to_string();
        if !self.log.as_ref().is_some_and(|log| log.writes(name)) {
            let begin = if words::level(name) == "error" { "error: " } else { "" };
            print::tell_within(PATIENCE, format_args!("{begin}{text}"));
        }
        self.emit(None, name.to_owned(), data.clone(), text.replace('\n', "; "));
    }

    /// Tells a finding of a check of a pool.
    pub(crate) fn checked(&self, pool: &str, news: &str) {
        self.emit(Some(pool), "Checked".to_owned(), json!(news), news.to_owned());
    }

    /// What a pool did, at its end.
    pub(crate) fn sum_up(&self, pool: &str, counts: &Counts) {
        self.emit(Some(pool), "InAll".to_owned(), json!(counts), words::in_all(counts));
    }

    fn emit(&self, pool: Option<&str>, event: String, data: Value, text: String) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, at: SystemTime::now(), pool: pool.map(str::to_owned), event, data, text };
        if let Some(log) = &self.log {
            log.tell(&entry);
        }
        if !self.watching.is_empty() && self.watching.publish((entry.json() + "\n").into_bytes()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

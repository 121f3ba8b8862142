//! Hub of events: they go to the log, to the clients of the control socket that ask for them, and to the service manager.

use crate::log::{Entry, Log};
use crate::metric_family::{Counter, MetricFamily};
use crate::notify::Manager;
use crate::print::PATIENCE;
use crate::{print, words};
use serde_json::{Value, json};
use sockdrawer::observe::{Counts, Event};
use sockdrawer::{ConnectionId, Field, Group, Report};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The family of reports by kind.
pub(crate) const REPORTS: &str = "sockdrawer_reports";

/// Hub that events go through.
pub(crate) struct Hub {
    log: Option<Log>,
    /// Connections of the control socket.
    watching: Group,
    number: AtomicU64,
    /// Events that watching connections did not get.
    pub(crate) lost: AtomicU64,
    pub(crate) manager: Arc<Manager>,
    /// Reports of protocols, also those that the log leaves out.
    pub(crate) reports: MetricFamily<Counter, 2>,
    /// Hears of events that are moments in the life of the program.
    moments: Box<dyn Fn(&Event) + Send + Sync>,
}

/// Returns a number or a text, as JSON.
pub(crate) fn value(field: &Field) -> Value {
    match field {
        Field::Number(number) => json!(number),
        Field::Text(text) => json!(text),
    }
}

impl Hub {
    pub(crate) fn new(log: Option<Log>, manager: Manager, moments: impl Fn(&Event) + Send + Sync + 'static) -> Arc<Hub> {
        let reports = Counter::family(REPORTS, "Reports of protocols, by their kind.", ["pool", "kind"]);
        let (watching, number, lost) = (Group::new(), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Hub { log, watching, number, lost, manager: Arc::new(manager), reports, moments: Box::new(moments) })
    }

    pub(crate) fn watching(&self) -> Group {
        self.watching.clone()
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// Tells an event of a pool.
    pub(crate) fn tell(&self, pool: &str, event: &Event) {
        self.manager.tell(event);
        self.tell_moment(event);
        if let Event::Reported { id, peer, report } = event {
            return self.reported(pool, (*id, *peer), report, words::words(event));
        }
        // An event is an object with one key, or a word.
        let (name, data) = match serde_json::to_value(event) {
            Ok(Value::Object(map)) => map.into_iter().next().unwrap_or_default(),
            Ok(Value::String(name)) => (name, Value::Null),
            _ => (format!("{event:?}"), Value::Null),
        };
        self.emit(Some(pool), name, data, words::words(event));
    }

    /// Tells the program itself, where an event of a pool is one of it.
    pub(crate) fn tell_moment(&self, event: &Event) {
        (self.moments)(event);
    }

    /// Tells a report of a protocol: one of a kind is an event by that name, with its fields.
    fn reported(&self, pool: &str, (id, peer): (ConnectionId, Option<SocketAddr>), report: &Report, text: String) {
        let mut data = json!({"id": id, "peer": peer, "message": report.message});
        for (name, value) in &report.fields {
            data[&**name] = self::value(value);
        }
        let kind = if report.kind.is_empty() { "Reported" } else { &*report.kind };
        self.reports.at([pool, kind]).add(1);
        self.put(Entry { is_record: report.is_record, ..self.entry(Some(pool), kind.to_owned(), data, text) });
    }

    /// Tells something that the program did, as an operator asked.
    pub(crate) fn note(&self, name: &str, data: &Value, text: impl fmt::Display) {
        self.emit(None, name.to_owned(), data.clone(), text.to_string());
    }

    /// Tells something that an operator is to read at once: where the log does not have it, it is a line on standard error.
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

    /// Tells what a pool did, at its end.
    pub(crate) fn sum_up(&self, pool: &str, counts: &Counts) {
        self.emit(Some(pool), "InAll".to_owned(), json!(counts), words::in_all(counts));
    }

    fn emit(&self, pool: Option<&str>, event: String, data: Value, text: String) {
        self.put(self.entry(pool, event, data, text));
    }

    fn entry(&self, pool: Option<&str>, event: String, data: Value, text: String) -> Entry {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        Entry { number, at: SystemTime::now(), pool: pool.map(str::to_owned), event, data, text, is_record: false }
    }

    fn put(&self, entry: Entry) {
        if let Some(log) = &self.log {
            log.tell(&entry);
        }
        if !self.watching.is_empty() && self.watching.publish((entry.json() + "\n").into_bytes()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

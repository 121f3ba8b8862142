//! Where events go: to the log, to the clients of the control socket that ask for them, and to the service manager.

use crate::log::Log;
use crate::notify::Manager;
use crate::words;
use serde_json::{Value, json};
use sockdrawer::Group;
use sockdrawer::observe::Event;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How events are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// Where events go.
pub(crate) struct Hub {
    log: Option<(Log, Form)>,
    /// Connections of the control socket.
    watching: Group,
    number: AtomicU64,
    /// Events that watching connections did not get.
    pub(crate) lost: AtomicU64,
    pub(crate) manager: Manager,
}

impl Hub {
    pub(crate) fn new(log: Option<(Log, Form)>, manager: Manager) -> Arc<Hub> {
        let (watching, number, lost) = (Group::new(), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Hub { log, watching, number, lost, manager })
    }

    pub(crate) fn watching(&self) -> Group {
        self.watching.clone()
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref().map(|(log, _)| log)
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
        self.emit(Some(pool), &name, &data, &words::words(event));
    }

    /// Something that the program did, as an operator asked.
    pub(crate) fn note(&self, name: &str, data: &Value, text: impl fmt::Display) {
        self.emit(None, name, data, &text.to_string());
    }

    fn emit(&self, pool: Option<&str>, name: &str, data: &Value, text: &str) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        if self.watching.is_empty() && !matches!(self.log, Some((_, Form::Json))) {
            self.write(pool, text);
            return;
        }
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let line =
            json!({"number": number, "at": at, "pool": pool, "event": name, "data": data, "text": text}).to_string() + "\n";
        match &self.log {
            Some((log, Form::Json)) => log.tell(line.trim_end()),
            _ => self.write(pool, text),
        }
        if self.watching.publish(line.into_bytes()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&self, pool: Option<&str>, text: &str) {
        let Some((log, Form::Text)) = &self.log else { return };
        match pool {
            Some(pool) => log.tell(format_args!("{pool}: {text}")),
            None => log.tell(text),
        }
    }
}

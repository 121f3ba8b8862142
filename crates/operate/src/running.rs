//! A program that runs, as its hooks see it.

use crate::change::Unchanged;
use crate::document::{Document, Format};
use crate::operator::{News, Operator};
use crate::revisions::Cause;
use sockdrawer::Pool;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

/// A program that runs: its pools by name, and its configuration. It is passed to [hooks](crate::Operated::hook), and may be cloned and kept: once the
/// program has ended it has no pools.
#[derive(Clone)]
pub struct Running(pub(crate) Weak<Operator>);

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

impl Running {
    fn operator(&self) -> Option<Arc<Operator>> {
        self.0.upgrade()
    }

    /// Returns the pool that the configuration has by this name, such as for [`Pool::listener`](sockdrawer::Pool::listener) or a handle. What is
    /// changed of it by its own methods is changed back by the next reload.
    pub fn pool(&self, name: &str) -> Option<Pool> {
        self.operator()?.server.state().pools.get(name).cloned()
    }

    /// Returns all pools of the configuration, by name.
    pub fn pools(&self) -> BTreeMap<String, Pool> {
        self.operator().map(|operator| operator.server.state().pools).unwrap_or_default()
    }

    /// Returns the configuration in force.
    pub fn document(&self) -> Arc<Document> {
        self.operator().map(|operator| operator.server.state().document).unwrap_or_default()
    }

    /// Changes the configuration to this text, all of it or nothing, as `ctl apply` does. Settings of the whole program that it leaves out stay.
    ///
    /// # Errors
    /// All that is wrong with it, or why it cannot be had, a line each.
    pub fn apply(&self, text: &str, format: Format) -> Result<(), Vec<String>> {
        let operator = self.operator().ok_or_else(|| vec!["the program has ended".to_owned()])?;
        let cause = Cause { what: "apply", by: "the program" };
        let change = |document| operator.server.change(|_| Ok(document), None, false, cause);
        let result = operator.parse(text, format).and_then(change);
        operator.told(cause, &result);
        result.map(drop).map_err(|why| match why {
            Unchanged::Wrong(mistakes) => mistakes,
            why => vec![why.to_string()],
        })
    }

    /// Has the program end as SIGTERM does.
    pub fn stop(&self) {
        // It may be gone.
        self.operator().into_iter().for_each(|operator| drop(operator.news.send(News::End)));
    }
}

//! The part of a program that is registered beside its configuration: protocols, settings and rules of its own, and metrics.

use super::Document;
use crate::metric_family::{self, AnyFamily};
use crate::program_settings;
use crate::protocol::Protocol;
use crate::setting::Setting;
use sockdrawer::Field;
use std::fmt;
use std::sync::Arc;

/// A check across settings.
pub(crate) type Rule = Arc<dyn Fn(&Document) -> Result<(), String> + Send + Sync>;

/// The rows of a table now.
type Rows = dyn Fn() -> Vec<Vec<Field>> + Send + Sync;

/// A table of the program's own: its name, its columns, and its rows.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Arc<Rows>,
}

/// Everything that configurations may name, with the rules that they obey and the metrics of the program.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) protocols: Vec<Protocol>,
    /// Settings of the whole program, beside the built-in ones.
    pub(crate) settings: Vec<Setting>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) metrics: Vec<Arc<dyn AnyFamily>>,
    /// Tables of the program's own.
    pub(crate) shown: Vec<Shown>,
}

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("protocols", &self.protocols).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Known {
    pub(crate) fn protocol(&self, name: &str) -> Option<&Protocol> {
        self.protocols.iter().find(|protocol| protocol.name == name)
    }

    /// Returns the settings of the whole program, those of its own behind the built-in ones.
    pub(crate) fn program_settings(&self) -> impl Iterator<Item = &Setting> {
        program_settings::SETTINGS.iter().chain(&self.settings)
    }

    /// Returns what the rules say against this configuration.
    pub(crate) fn against(&self, document: &Document) -> impl Iterator<Item = String> {
        self.rules.iter().filter_map(|rule| rule(document).err())
    }

    /// Returns the reason why no configuration can be right: the program itself is at fault.
    pub(crate) fn wrong(&self) -> Option<String> {
        let settings: Vec<&str> = self.program_settings().map(|setting| setting.name).chain(["pool"]).collect();
        let twice = settings.iter().enumerate().find(|(at, name)| settings[..*at].contains(name));
        let protocols: Vec<&str> = self.protocols.iter().map(|protocol| protocol.name).collect();
        let same = protocols.iter().enumerate().find(|(at, name)| protocols[..*at].contains(name));
        let twice = twice.map(|(_, name)| format!("setting {name} is there already: choose another name"));
        let same = same.map(|(_, name)| format!("protocol {name} is registered twice: choose another name"));
        twice.or(same).or_else(|| metric_family::wrong(&self.metrics))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Kind;

    #[test]
    fn a_program_that_registers_a_name_twice_is_told_so() {
        let known = |names: &[&'static str]| Known {
            settings: names.iter().map(|name| Setting::new(name, Kind::Switch, "It is on.")).collect(),
            ..Known::default()
        };
        for names in [&["metrics"][..], &["pool"], &["rooms", "rooms"]] {
            assert!(known(names).wrong().is_some_and(|why| why.contains("is there already")), "{names:?}");
        }
        assert_eq!(known(&["rooms", "lines"]).wrong(), None);
    }
}

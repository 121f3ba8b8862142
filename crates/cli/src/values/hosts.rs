//! Machines that ssh reaches.

use super::BadValue;
use sockdrawer_load::Host;
use std::collections::BTreeSet;
use std::fs;
use std::str::FromStr;

/// A list of machines, or the name of a file that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hosts {
    pub(crate) hosts: Vec<Host>,
}

impl FromStr for Hosts {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Hosts, BadValue> {
        let hosts: Vec<Host> = match text.strip_prefix('@') {
            Some(path) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| BadValue(format!("cannot read {path}: {error}; name a file with a machine on each line")))?;
                let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
                lines.filter(|line| !line.is_empty()).map(host).collect::<Result<_, _>>()?
            }
            None => text.split(',').map(|part| host(part.trim())).collect::<Result<_, _>>()?,
        };
        if hosts.is_empty() {
            return Err(BadValue("no machine is in it: write user@host, one a line".to_owned()));
        }
        let mut names = BTreeSet::new();
        match hosts.iter().find(|host| !names.insert(&host.name)) {
            Some(Host { name, .. }) => Err(BadValue(format!("two are called {name}: give one another name, as in b={name}"))),
            None => Ok(Hosts { hosts }),
        }
    }
}

/// Reads a machine.
pub(crate) fn host(text: &str) -> Result<Host, BadValue> {
    let (name, destination) = text.split_once('=').unwrap_or((text, text));
    let is_one = |word: &str| !word.is_empty() && !word.starts_with('-') && !word.contains(char::is_whitespace);
    if !is_one(name) || !is_one(destination) {
        return Err(BadValue(format!("`{text}` is no machine: write user@host or name=user@host")));
    }
    Ok(Host { name: name.to_owned(), destination: destination.to_owned() })
}

/// Reads a name of objects of Kubernetes: a label of DNS, short enough for what is added to it.
pub(crate) fn object_name(text: &str) -> Result<String, BadValue> {
    const LONGEST: usize = 50;
    let is_one = text.len() <= LONGEST
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.ends_with(|last: char| last.is_ascii_lowercase() || last.is_ascii_digit())
        && text.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-');
    let why = || BadValue(format!("no name for Kubernetes: write small letters, digits and -, {LONGEST} at most"));
    is_one.then(|| text.to_owned()).ok_or_else(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_labels() {
        assert_eq!(object_name("load-2").as_deref(), Ok("load-2"));
        for wrong in ["", "Load", "2load", "load-", "a_b", &"a".repeat(51)] {
            assert!(object_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn machines_have_names_of_their_own() {
        let names = |text: &str| text.parse::<Hosts>().map(|hosts| hosts.hosts).map_err(|error| error.to_string());
        let pairs = |hosts: Vec<Host>| hosts.into_iter().map(|host| (host.name, host.destination)).collect::<Vec<_>>();
        let named = names("me@h1, b=me@h2").map(pairs).expect("two");
        assert_eq!(named, [("me@h1".to_owned(), "me@h1".to_owned()), ("b".to_owned(), "me@h2".to_owned())]);
        assert!(names("h,h").expect_err("twice").contains("give one another name"));
        assert!(names("").expect_err("none").contains("write user@host"));
        assert!(names("-oProxyCommand=x").expect_err("an option").contains("no machine"));
        assert!(names("@/no/such/file").expect_err("none").contains("cannot read /no/such/file"));
    }
}

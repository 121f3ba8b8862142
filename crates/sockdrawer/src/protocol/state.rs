//! What a saved state is called, and which versions of it are read.

use super::saved::CannotRestore;
use std::borrow::Cow;

/// The name and the version of the states that a service saves. Between two builds of a program only states go over that are declared: the
/// newer one reads those whose name it knows and whose version is among those that it reads.
///
/// ```
/// use sockdrawer::State;
///
/// // Writes version 4 and still reads what the two releases before it wrote.
/// let state = State::of("chat", 4).reads_from(2);
/// assert!(state.can_read(&State::of("chat", 3)).is_ok());
/// assert!(state.can_read(&State::of("chat", 5)).is_err());
/// assert!(state.can_read(&State::none()).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Of the protocol, then of each layer around it; empty: nothing is declared.
    levels: Vec<Level>,
    together: bool,
}

/// The state of a protocol, or of one filter around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) name: Cow<'static, str>,
    /// The version that is written.
    pub(crate) version: u32,
    /// The oldest that is read.
    pub(crate) oldest: u32,
}

impl State {
    /// Nothing is declared, which is the default: connections do not move to another process.
    pub fn none() -> State {
        State::default()
    }

    /// States of this name are written as `version`, and no other version is read. This is checked between builds; in one process
    /// [`Pool::adopt`](crate::Pool::adopt) gives any saved state to [`Service::restore`](crate::Service::restore), which refuses what it does not know:
    /// see [`Saved::version`](crate::Saved::version).
    pub fn of(name: impl Into<Cow<'static, str>>, version: u32) -> State {
        State { levels: vec![Level { name: name.into(), version, oldest: version }], together: false }
    }

    /// The connections speak to each other, so all of them move at once, with those of all other pools of the program whose states say so: no
    /// connection reads before all are in the new process and were told [`restored`](crate::Protocol::restored), and notes under way arrive
    /// before they move. The pause of each is that of all: about 15 µs for each connection. Those that cannot move just then, because a job of
    /// theirs runs, follow one by one.
    #[must_use]
    pub fn together(mut self) -> State {
        self.together = true;
        self
    }

    /// Older versions are read too, from this one on.
    #[must_use]
    pub fn reads_from(mut self, oldest: u32) -> State {
        for level in &mut self.levels {
            level.oldest = oldest.min(level.version);
        }
        self
    }

    /// Whether states that are declared so are read.
    ///
    /// # Errors
    /// Why not, in one line.
    pub fn can_read(&self, written: &State) -> Result<(), CannotRestore> {
        let because = |why: String| Err(CannotRestore::because(why));
        if self.levels.is_empty() || written.levels.is_empty() {
            let which =
                if written.levels.is_empty() { "its service declares no state" } else { "the new service declares no state" };
            return because(which.to_owned());
        }
        if self.levels.len() != written.levels.len() {
            return because(format!(
                "its state is {written}, and the new service reads {self}: there is another number of layers"
            ));
        }
        for (level, written) in self.levels.iter().zip(&written.levels) {
            if level.name != written.name || !(level.oldest..=level.version).contains(&written.version) {
                let Level { name, version, oldest } = level;
                let (other, at) = (&written.name, written.version);
                return because(format!("its state is {other} {at}, and the new service reads {name} {oldest} to {version}"));
            }
        }
        Ok(())
    }

    /// The state of a layer around a service: declared where that of both is.
    pub(crate) fn within(mut self, filter: State) -> State {
        if self.levels.is_empty() || filter.levels.is_empty() {
            return State::none();
        }
        self.levels.extend(filter.levels);
        self
    }

    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    pub(crate) fn of_levels(levels: impl Iterator<Item = Level>) -> State {
        State { levels: levels.collect(), together: false }
    }

    pub(crate) fn moves_together(&self) -> bool {
        self.together
    }

    /// The versions that are written, in the order in which a state is.
    pub(crate) fn versions(&self) -> Vec<u32> {
        self.levels.iter().map(|level| level.version).collect()
    }
}

/// The names and the versions that are written.
impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let levels: Vec<String> = self.levels.iter().map(|level| format!("{} {}", level.name, level.version)).collect();
        f.write_str(if levels.is_empty() { "none" } else { "" })?;
        f.write_str(&levels.join(" in "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_level_by_level() {
        let old = State::of("chat", 3).within(State::of("proxy", 1));
        let new = State::of("chat", 4).reads_from(3).within(State::of("proxy", 1));
        assert_eq!(new.can_read(&old), Ok(()));
        assert_eq!((old.to_string().as_str(), old.versions()), ("chat 3 in proxy 1", vec![3, 1]));
        let refused = |new: &State, old: &State| new.can_read(old).expect_err("it is another").to_string();
        assert_eq!(refused(&old, &new), "its state is chat 4, and the new service reads chat 3 to 3");
        let other = State::of("chat", 3).within(State::of("tls", 1));
        assert_eq!(refused(&new, &other), "its state is tls 1, and the new service reads proxy 1 to 1");
        assert!(refused(&State::of("chat", 4), &old).contains("another number of layers"));
        assert_eq!(refused(&new, &State::none()), "its service declares no state");
        assert_eq!(refused(&State::none(), &new), "the new service declares no state");
        assert_eq!(State::of("chat", 3).within(State::none()), State::none());
    }
}

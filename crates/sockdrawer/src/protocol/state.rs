//! Names of saved states, and the versions of them that are read.

use super::saved::CannotRestore;
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// The name and the version of the states that a service saves. Between two builds of a program only states go over that are declared: the
/// newer one reads those whose name it knows and whose version is among those that it reads.
///
/// ```
/// use sockdrawer::State;
///
/// // Writes version 4, and reads what the two releases before it wrote and what the next one is going to write.
/// let state = State::of("chat", 4).reads(2..=5);
/// assert!(state.can_read(&State::of("chat", 3)).is_ok());
/// assert!(state.can_read(&State::of("chat", 5)).is_ok());
/// assert!(state.can_read(&State::of("chat", 6)).is_err());
/// assert!(state.can_read(&State::none()).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Levels of the protocol, then of each layer around it; empty: nothing is declared.
    levels: Vec<Level>,
    together: bool,
    /// Levels of connections that came in by other layers of the same pool.
    others: Vec<Vec<Level>>,
}

/// The state of a protocol, or of one filter around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) name: Cow<'static, str>,
    /// The version that is written.
    pub(crate) version: u32,
    /// The oldest and the newest that are read.
    pub(crate) oldest: u32,
    pub(crate) newest: u32,
}

impl State {
    /// Declares nothing, which is the default: connections do not move to another process.
    pub fn none() -> State {
        State::default()
    }

    /// States of this name are written as `version`, and no other version is read. This is checked between builds; in one process
    /// [`Pool::adopt`](crate::Pool::adopt) gives any saved state to [`Service::restore`](crate::Service::restore), which refuses what it does not
    /// know: see [`Saved::version`](crate::Saved::version).
    pub fn of(name: impl Into<Cow<'static, str>>, version: u32) -> State {
        let level = Level { name: name.into(), version, oldest: version, newest: version };
        State { levels: vec![level], ..State::default() }
    }

    /// Declares that the connections speak to each other, so all of them move at once, with those of all other pools of the program whose states say
    /// so: no connection reads before all are in the new process and were told [`restored`](crate::Protocol::restored), and notes under way arrive
    /// before they move. The pause of each is that of all: about 15 µs for each connection. Those that cannot move just then, because a job of theirs
    /// runs, follow one by one.
    #[must_use]
    pub fn together(mut self) -> State {
        self.together = true;
        self
    }

    /// Reads these versions too, beside that which is written: older ones, and a newer one that a release is to write when all that it may
    /// have to go back to read it.
    #[must_use]
    pub fn reads(mut self, versions: RangeInclusive<u32>) -> State {
        for level in &mut self.levels {
            level.oldest = level.version.min(*versions.start());
            level.newest = level.version.max(*versions.end());
        }
        self
    }

    /// Fails unless states that are declared like `written` are read.
    ///
    /// # Errors
    /// The reason why they are not, in one line.
    pub fn can_read(&self, written: &State) -> Result<(), CannotRestore> {
        let mut all = std::iter::once(&self.levels).chain(&self.others);
        let like = |levels: &&Vec<Level>| levels.len() == written.levels.len();
        if all.clone().any(|levels| can_read(levels, written).is_ok()) {
            return Ok(());
        }
        can_read(all.find(like).unwrap_or(&self.levels), written)
    }

    /// Returns the state of a layer around a service: declared where that of both is.
    pub(crate) fn within(mut self, filter: State) -> State {
        if self.levels.is_empty() || filter.levels.is_empty() {
            return State::none();
        }
        self.levels.extend(filter.levels);
        self
    }

    /// Adds the state of connections that come in by other layers: it is read, too.
    pub(crate) fn or(mut self, other: State) -> State {
        if other.levels != self.levels && !other.levels.is_empty() && !self.others.contains(&other.levels) {
            self.others.push(other.levels);
        }
        self
    }

    /// Returns the levels, and those of connections that come in by other layers.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &[Level]> {
        std::iter::once(&self.levels).chain(&self.others).map(Vec::as_slice)
    }

    pub(crate) fn of_levels(levels: impl Iterator<Item = Level>) -> State {
        State { levels: levels.collect(), ..State::default() }
    }

    /// Returns the names of the levels, in the order in which a state is written.
    pub(crate) fn names(&self) -> Vec<String> {
        self.levels.iter().map(|level| level.name.to_string()).collect()
    }

    /// Returns the state of these names and versions.
    pub(crate) fn written(names: &[String], versions: &[u32]) -> State {
        let level = |(name, version): (&String, &u32)| Level {
            name: name.clone().into(),
            version: *version,
            oldest: *version,
            newest: *version,
        };
        State::of_levels(names.iter().zip(versions).map(level))
    }

    pub(crate) fn moves_together(&self) -> bool {
        self.together
    }

    /// Returns the versions that are written, in the order in which a state is.
    pub(crate) fn versions(&self) -> Vec<u32> {
        self.levels.iter().map(|level| level.version).collect()
    }
}

/// Checks whether these levels read that state.
fn can_read(reads: &[Level], written: &State) -> Result<(), CannotRestore> {
    let because = |why: String| Err(CannotRestore::because(why));
    if reads.is_empty() || written.levels.is_empty() {
        let which = if written.levels.is_empty() { "its service declares no state" } else { "the new service declares no state" };
        return because(which.to_owned());
    }
    if reads.len() != written.levels.len() {
        return because(format!(
            "its state is {written}, and the new service reads {}: there is another number of layers",
            display(reads)
        ));
    }
    for (level, written) in reads.iter().zip(&written.levels) {
        if level.name != written.name || !(level.oldest..=level.newest).contains(&written.version) {
            let Level { name, oldest, newest, .. } = level;
            let (other, at) = (&written.name, written.version);
            return because(format!("its state is {other} {at}, and the new service reads {name} {oldest} to {newest}"));
        }
    }
    Ok(())
}

/// The names and the versions that are written.
impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&display(&self.levels))
    }
}

fn display(levels: &[Level]) -> String {
    let all: Vec<String> = levels.iter().map(|level| format!("{} {}", level.name, level.version)).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(" in ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_level_by_level() {
        let old = State::of("chat", 3).within(State::of("proxy", 1));
        let new = State::of("chat", 4).reads(3..=4).within(State::of("proxy", 1));
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
        let before = State::of("chat", 3).reads(2..=4).within(State::of("proxy", 1));
        assert_eq!((before.can_read(&new), before.can_read(&old), before.versions()), (Ok(()), Ok(()), vec![3, 1]));
        assert_eq!(State::of("chat", 3).reads(1..=2).can_read(&State::of("chat", 3)), Ok(()), "its own is always read");
    }

    #[test]
    fn a_pool_reads_the_states_of_all_its_listeners() {
        let plain = State::of("chat", 4).reads(3..=4);
        let secret = plain.clone().within(State::of("tls", 1));
        let pool = plain.clone().or(secret.clone()).or(plain.clone()).or(State::none());
        assert_eq!(pool.sets().count(), 2);
        for written in [State::of("chat", 3), State::of("chat", 3).within(State::of("tls", 1))] {
            assert_eq!(pool.can_read(&written), Ok(()), "{written}");
            let again = State::written(&written.names(), &written.versions());
            assert_eq!((again.to_string(), pool.can_read(&again)), (written.to_string(), Ok(())));
        }
        let other = pool.can_read(&State::of("chat", 3).within(State::of("proxy", 1))).expect_err("no listener has it");
        assert_eq!(other.to_string(), "its state is proxy 1, and the new service reads tls 1 to 1");
    }
}

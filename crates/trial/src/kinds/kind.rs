//! The kinds of change that a trial applies.

use sockdrawer::changing::How;

/// A kind of change. "Seen" is the test from outside that the change is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Another service type, which echoes too. Seen: a connection made afterwards has the new generation.
    Protocol,
    /// Water marks and `max_partial`. Seen: a connection made afterwards has the new generation.
    Settings,
    /// Options of accepted sockets. Seen: the kernel's options of a connection made afterwards.
    AcceptedOptions,
    /// Options of live connections. Seen: the kernel's options of a kept connection.
    LiveOptions,
    /// Backlog. Seen: the pool's status, because the kernel does not tell a listener's backlog, and an echo.
    Backlog,
    /// Threads that run connections, 1 to 3. Seen: as many loops are active.
    Loops,
    /// Threads that run jobs, 0 to 3, while one of the services echoes by jobs. Seen: there are as many workers.
    Workers,
    /// The limit of connections, always well above use. Seen: the status's limit.
    Limit,
    /// A limit below the number of connections, and the old limit again. Seen: the status's limit; connects wait in the queue, no client
    /// is refused or closed, and afterwards the connects that waited are accepted.
    LimitBelow,
    /// Another admission policy, with limits far above use. Seen: the pool's configuration, no client is turned away, and an echo.
    Admission,
    /// Memory allocated in advance. Seen: the pool's configuration and an echo.
    Capacity,
    /// A second listen address. Seen: it answers.
    AddAddress,
    /// The second listen address is removed. Seen: it refuses.
    RemoveAddress,
    /// A bind-time option of the address to which the churn connects. Seen: the kernel lists other listening sockets there, and an echo.
    ReplaceAddress,
    /// The pool is suspended and resumed. Seen: no connection is accepted between, some afterwards.
    Suspend,
    /// Live connections move to the newest generation. Seen: all kept connections have it.
    Adopt,
    /// A service that panics at a marker. Seen: the client that sends the marker is reset and one panic is counted; the next client gets
    /// its echo.
    Crash,
    /// A note to every kept connection. Seen: as many notes were delivered.
    Notify,
    /// The second set and the requests are asked to end, at a rate and with a deadline. Seen: all of them end in order, each
    /// request that the server had begun to read answered.
    Drain,
    /// The second set is purged. Seen: all of its connections end in order.
    Purge,
    /// A connection of the second set is killed. Seen: one reset.
    Kill,
    /// Another server takes over, as a new build of a program does: listeners and live connections. Seen: it has all kept connections, and
    /// the server before it ends with none.
    Upgrade,
    /// Another certificate, of a server under TLS beside the first, with clients of its own. Seen: the handshakes that begin afterwards show it,
    /// those under way show it or the one before, and connections that stay go on under the new generation.
    Certificate,
    /// Other targets and weights of a proxy beside the first server, with clients of its own, one target dead in turn. Seen: clients that come afterwards have
    /// a target that serves, and pairs that stay go on under the new generation.
    Targets,
    /// The sabotage that the options name.
    Sabotage,
}

/// Way in which a kind of change is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A new configuration, in this way.
    Configured(How),
    /// An operation, at once.
    Operation,
    /// Save and restore.
    Adopted,
    /// A request to connections of the second set to end.
    Asked,
    /// A handover to another process, or to another pool in the place of one.
    HandedOver,
    /// A fault on purpose.
    Sabotaged,
}

impl Kind {
    /// All kinds; the sabotage last.
    pub const ALL: [Kind; 25] = [
        Kind::Protocol,
        Kind::Settings,
        Kind::AcceptedOptions,
        Kind::LiveOptions,
        Kind::Backlog,
        Kind::Loops,
        Kind::Workers,
        Kind::Limit,
        Kind::LimitBelow,
        Kind::Admission,
        Kind::Capacity,
        Kind::AddAddress,
        Kind::RemoveAddress,
        Kind::ReplaceAddress,
        Kind::Suspend,
        Kind::Adopt,
        Kind::Crash,
        Kind::Notify,
        Kind::Drain,
        Kind::Purge,
        Kind::Kill,
        Kind::Upgrade,
        Kind::Certificate,
        Kind::Targets,
        Kind::Sabotage,
    ];

    /// Returns the kinds that a server must survive: all but the sabotage.
    pub fn proper() -> &'static [Kind] {
        &Kind::ALL[..Kind::ALL.len() - 1]
    }

    /// Returns the name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Protocol => "protocol",
            Kind::Settings => "settings",
            Kind::AcceptedOptions => "accepted options",
            Kind::LiveOptions => "live options",
            Kind::Backlog => "backlog",
            Kind::Loops => "loops",
            Kind::Workers => "workers",
            Kind::Limit => "limit",
            Kind::LimitBelow => "limit below use",
            Kind::Admission => "admission",
            Kind::Capacity => "capacity",
            Kind::AddAddress => "add address",
            Kind::RemoveAddress => "remove address",
            Kind::ReplaceAddress => "replace address",
            Kind::Suspend => "suspend, resume",
            Kind::Adopt => "adopt",
            Kind::Crash => "crashing protocol",
            Kind::Notify => "notify",
            Kind::Drain => "drain",
            Kind::Purge => "purge",
            Kind::Kill => "kill",
            Kind::Upgrade => "upgrade",
            Kind::Certificate => "certificate",
            Kind::Targets => "targets",
            Kind::Sabotage => "sabotage",
        }
    }

    /// Returns the way in which the change is carried out.
    pub fn way(self) -> Way {
        match self {
            Kind::Protocol | Kind::Settings | Kind::AcceptedOptions | Kind::Crash | Kind::Certificate | Kind::Targets => {
                Way::Configured(How::NewGeneration)
            }
            Kind::Backlog | Kind::Loops | Kind::Workers | Kind::Limit | Kind::LimitBelow | Kind::Admission | Kind::Capacity => {
                Way::Configured(How::InPlace)
            }
            Kind::AddAddress | Kind::RemoveAddress | Kind::ReplaceAddress => Way::Configured(How::NewSocket),
            Kind::LiveOptions | Kind::Suspend | Kind::Notify => Way::Operation,
            Kind::Adopt => Way::Adopted,
            Kind::Drain | Kind::Purge | Kind::Kill => Way::Asked,
            Kind::Upgrade => Way::HandedOver,
            Kind::Sabotage => Way::Sabotaged,
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl Way {
    /// Returns the name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Way::Configured(How::NewGeneration) => "new generation",
            Way::Configured(How::NewSocket) => "new socket",
            Way::Configured(_) | Way::Operation => "in place",
            Way::Adopted => "adopted",
            Way::Asked => "asked to end",
            Way::HandedOver => "handed over",
            Way::Sabotaged => "on purpose",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_index() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
        assert!(!Kind::proper().contains(&Kind::Sabotage));
    }
}

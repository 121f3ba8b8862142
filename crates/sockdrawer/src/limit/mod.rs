//! LIMITS: which connections are let in, exactly, also among processes: permits, the peers' counts, the rate, the admission policy.

pub(crate) mod alarms;
pub(crate) mod limiter;
pub(crate) mod pacer;
pub(crate) mod peer_counts;
pub(crate) mod policy;

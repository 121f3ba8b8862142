//! LISTENERS: long-lived sockets, one or more for each address, and what the loops know of an address beside them.

pub(crate) mod listener;
pub(crate) mod passed_on;
pub(crate) mod path_lock;
pub(crate) mod permit;
pub(crate) mod probe;
pub(crate) mod reuseport_group;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod unix_path;

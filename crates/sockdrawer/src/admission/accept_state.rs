//! The states that an operator gives a pool, or one of its addresses.

use super::Reject;

/// Says if a pool, or one of its addresses, takes connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum AcceptState {
    #[default]
    Open,
    /// New connections wait in the kernel.
    Suspended,
    /// New connections are accepted and turned away.
    Refusing(Reject),
}

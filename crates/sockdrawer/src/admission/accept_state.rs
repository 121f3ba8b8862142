//! The states that an operator gives a pool, or one of its addresses.

use super::Reject;

/// Says if a pool, or one of its addresses, takes connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum AcceptState {
    #[default]
    Open,
    /// They wait in the kernel.
    Suspended,
    /// They are accepted and turned away.
    Refusing(Reject),
}

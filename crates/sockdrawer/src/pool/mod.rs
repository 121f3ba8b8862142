//! CONTROL PLANE: decides, and never touches a byte of a connection.

pub(crate) mod behind;
mod change;
mod control;
mod drain;
mod handle;
#[cfg(feature = "tokio")]
mod in_async;
mod lifecycle;
mod listeners;
pub(crate) mod loops;
pub(crate) mod manager;
pub(crate) mod members;
#[cfg(feature = "upgrade")]
pub(crate) mod moving;
pub(crate) mod plan;
#[cfg(feature = "processes")]
mod processes;
#[cfg(any(feature = "processes", feature = "upgrade"))]
pub(crate) mod request;
mod restarts;
mod retire;
mod running;
mod sockets;
mod supervise;
#[cfg(test)]
mod tests;
mod validate;

pub use handle::PoolHandle;
#[cfg(feature = "upgrade")]
pub(crate) use listeners::{Inherited, ListeningSockets, goes_on};
pub use plan::{Applied, Change, How, Plan};
#[cfg(feature = "processes")]
pub use processes::{layers, processes};
pub use running::Pool;
#[cfg(feature = "upgrade")]
pub(crate) use running::start;

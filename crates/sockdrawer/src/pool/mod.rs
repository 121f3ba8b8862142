//! CONTROL PLANE: decides, and never touches a byte of a connection.

mod commit;
mod control;
mod drain;
mod halt;
mod handle;
mod intake;
mod leaving;
mod local;
mod manager;
mod places;
mod plan;
#[cfg(feature = "processes")]
mod processes;
mod restarts;
mod retire;
mod supervise;
#[cfg(test)]
mod tests;

pub use drain::{Drain, Drained};
pub use handle::{Applied, Pool};
pub use plan::{Change, How, Plan};
#[cfg(feature = "processes")]
pub use processes::processes;

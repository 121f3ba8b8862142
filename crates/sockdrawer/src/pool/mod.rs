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
mod selector;
mod supervise;
#[cfg(test)]
mod tests;

pub use drain::{Drain, Drained};
pub use handle::{Adopted, Applied, Pool};
pub use plan::{Change, How, Plan};
#[cfg(feature = "processes")]
pub use processes::processes;
pub use selector::Selector;

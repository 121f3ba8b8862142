//! sockdrawer holds sockets so that the program around them can change: protocol, options, listeners, limits and threads of a
//! running TCP or Unix-socket service change without a lost connection.
//!
//! Start at [`Protocol`], what you write, and [`Pool`], what runs it.

#[cfg(panic = "abort")]
compile_error!(
    "sockdrawer needs panic = \"unwind\": with \"abort\" one connection's panic would end every connection. \
     Remove `panic = \"abort\"` from the profile in Cargo.toml."
);

pub mod layer;
pub mod net;
mod protocol;
mod sys;
pub mod testing;

pub use net::Address;
pub use protocol::*;

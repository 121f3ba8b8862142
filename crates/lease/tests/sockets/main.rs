//! Sockets of the library as what is leased.

mod ends;
mod race;
mod server;
mod uses;

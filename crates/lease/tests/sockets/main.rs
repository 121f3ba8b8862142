//! Sockets of the library as what is leased.

mod ends;
mod moves;
mod race;
mod server;
mod uses;

//! Pools in one process, through the public interface: a file for each subject.

#[path = "../common/mod.rs"]
mod common;

mod admission;
mod adopting;
#[cfg(feature = "axum")]
mod axum;
mod blocking;
mod changes;
mod chat;
mod closing;
mod configuring;
mod delegation;
mod folder;
mod groups;
mod inside;
mod limits;
mod lines;
mod listener_layers;
mod listeners;
mod pausing;
mod policies;
mod proxy;
mod receiving;
mod recipes;
mod recovering;
mod relays;
mod remote;
mod replacing;
mod restarting;
mod short_connections;
mod single;
mod starvation;
mod supervision;
#[cfg(feature = "tokio")]
mod tasks;
mod threads;
mod unix_paths;

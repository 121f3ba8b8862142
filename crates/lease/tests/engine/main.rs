//! The engine alone: by examples, under simulated loads, and beside a simple model.

mod common;
mod lives;
mod loads;
mod model;
mod policies;
mod properties;
mod scenarios;
mod world;

//! The engine alone: by examples, and beside a simple model.

mod common;
mod model;
mod properties;
mod scenarios;

//! The storm's own laws, and our policy's bands on small storms.
//!
//! `model` and `lines` check the model: a simulation that lets a call through an outage, or loses a message, proves nothing.
//! `bands` runs our policy and a few others through the scenarios at a quarter of their size; `examples/storm` runs them whole.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may panic")]

#[path = "mod.rs"]
mod simulation;

mod bands;
mod lines;
mod model;

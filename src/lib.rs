//! Spillway: a Cloudflare Worker that absorbs Claude API overload (529) and rate limits (429).
//!
//! The crate is a set of rings; an arrow only ever points inwards (`tests/architecture` checks it):
//!
//! ```text
//! edge ──► submission, delivery, relay ──► call ──► config ──► api ──► job, claude, telemetry ──► policy ──► json ──► std without clock
//! ```
//!
//! - [`json`] reads and writes what every ring keeps and says.
//! - [`policy`] decides. Pure and synchronous: time and randomness are arguments, state is data.
//! - `job`, `claude`, `telemetry`, `api` and `config` are the domain, the upstream protocol, our facts, our HTTP contract
//!   and our settings, as data.
//! - `call` is what the ways to a model have in common; `submission`, `delivery` and `relay` are the ways through the house, step by step, without I/O.
//! - `edge` is the only ring that awaits anything. It exists on wasm32 alone and decides nothing.

pub mod api;
pub mod call;
pub mod claude;
pub mod config;
pub mod delivery;
pub mod job;
pub mod json;
pub mod policy;
pub mod relay;
pub mod submission;
pub mod telemetry;

#[cfg(target_arch = "wasm32")]
mod edge;

//! The edge ring: the only code that awaits anything. It does what the inner rings say and decides nothing itself.
//!
//! Three things hold everywhere in here. Nothing panics: a panic traps the Wasm instance and kills every other request in
//! it. The queue handler never fails: its `Err` is made into a panic by the macro. And no call to a Durable Object is
//! awaited without a timeout: an object that trapped leaves its callers hanging.

mod account;
mod claude_fetch;
mod clock;
mod consumer;
mod entropy;
mod entry;
mod figures;
mod flow;
mod gate_object;
mod http;
mod index_object;
mod job_events;
mod job_object;
mod job_storage;
mod js;
mod keeper;
mod large;
mod line;
mod listing;
mod log;
mod messages;
mod meter;
mod meter_object;
mod operations;
mod passing;
mod post;
mod results;
mod settings;
mod sql;
mod stubs;
mod switches;
mod together;
mod upstream;
mod views;
mod webhook;
mod wire;

//! Our facts: what happened, as data. One event is one JSON line in Workers Logs, and has no prompt, answer or key in it.

pub mod event;

pub use event::Event;

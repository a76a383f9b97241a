//! Our facts: what happened, as data. One event is one JSON line in Workers Logs, and has no prompt, answer or key in it; what
//! the events add up to are the metrics, and the figures that are read off them.

pub mod alerts;
pub mod event;
pub mod figures;
pub mod metric;
pub mod news;
pub mod readings;
pub mod refusals;
pub mod sums;
pub mod teller;

pub use event::Event;
pub use news::{Batch, Dispatch, Had, News, Noted};
pub use teller::Teller;

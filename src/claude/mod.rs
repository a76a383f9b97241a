//! The upstream protocol, as data: what goes to the Messages API, what comes back, and what a failure means.
//!
//! Nothing here performs I/O or reads a clock. The edge hands over bytes, status and headers; this ring answers with a
//! [`response::Message`] or a [`failure::Failure`]. JSON that is not ours to understand is never parsed into a tree: it
//! stays the text that it was, and is spliced (a 32 MB tree would leave twice its size of Wasm memory behind for ever, and
//! a number that went through `f64` is another number).
//!
//! | module | decides |
//! | --- | --- |
//! | [`request`] | whether a Messages body can be sent at all, and what its calls consist of |
//! | `demands` | what a body asks of its model |
//! | [`tool_history`] | whether calls of tools and their results fit, and what they look like mended |
//! | [`rewrite`] | what a body looks like for another model than the one it was written for |
//! | [`betas`], [`version`] | whether an `anthropic-beta` or `anthropic-version` header can be passed on |
//! | [`sse`] | where one server-sent event ends and the next begins |
//! | [`response`] | what Message a stream amounts to, and whether it is complete |
//! | [`passage`] | what of a stream may go out while it comes, and what its reader is told when it breaks off |
//! | [`replay`] | which stream a Message would have come in |
//! | [`failure`] | which cause a failed call has |
//! | [`ratelimits`] | what the upstream says about its own limits |

pub mod betas;
mod demands;
pub mod failure;
pub mod passage;
pub mod ratelimits;
pub mod raw;
pub mod replay;
pub mod request;
pub mod response;
pub mod rewrite;
pub mod sse;
pub mod tool_history;
pub mod version;
mod wording;

//! The storm: a seeded discrete-event simulation of jobs, queues and an upstream that overloads, and of the policies that
//! have to come through it. No sleeping, no network: a day of a million jobs takes a minute or two.
//!
//! | file | what it is |
//! | --- | --- |
//! | `world` | The clock, the events, the users, and the tasks that a policy is made of. |
//! | `claude`, `weather` | The upstream: capacity, latency, refusals; and how those change over time. |
//! | `queues` | Cloudflare Queues. |
//! | `spillway`, `spillway/messages` | Our policy: all that knows the crate. It drives what the Worker runs, and decides nothing. |
//! | `rivals` | The other policies, and the oracle that knows what nobody can. |
//! | `callers` | Users who wait for their answer: who they are, and what came of them. |
//! | `scenario` | Storms, as files: parameters, bands, and a paragraph of why. |
//! | `report`, `plot` | What came of it. |
//!
//! Both the example `storm` and the test target `simulation` are made of these files.

#![allow(dead_code, reason = "the example and the tests each use a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a tool may stop")]

pub(crate) mod callers;
pub(crate) mod claude;
pub(crate) mod docs;
pub(crate) mod facts;
pub(crate) mod plot;
pub(crate) mod queues;
pub(crate) mod report;
pub(crate) mod rivals;
pub(crate) mod run;
pub(crate) mod scenario;
pub(crate) mod spillway;
pub(crate) mod weather;
pub(crate) mod world;

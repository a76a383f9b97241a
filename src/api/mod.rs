//! Our HTTP contract: routes, authentication, what goes in and what comes out, errors.

pub mod address;
pub mod alert;
pub mod auth;
pub mod backstage;
pub mod decimal;
pub mod error;
pub mod events;
pub mod form;
pub mod listing;
pub mod metrics;
pub mod moment;
pub mod order;
pub mod overriding;
pub mod queues;
pub mod read_token;
pub mod redriving;
pub mod route;
pub mod status;
pub mod view;
pub mod webhook;
pub mod wish;

//! The load generator: a plan, a pace, clients, and accurate measurements of their requests.
//!
//! `text → RunPlan → run → RunMeasurement → record`. One client loop drives every kind of load: the
//! pace (closed, constant, Poisson), the end (time, count) and the recorder are values passed to
//! it. Decisions ([`pace`], [`validity`], [`calibrate`], [`plan`]) are pure; [`run`] does the I/O.

#![forbid(unsafe_code)]

mod arrival_schedule;
mod backlog;
pub mod baseline;
pub mod calibrate;
pub mod capacity_search;
mod client;
mod collector;
pub mod control;
mod core;
mod core_state;
mod dispatcher;
mod in_flight;
mod inspection;
mod latency_estimator;
pub mod measurement;
pub mod observer;
pub mod recorder;
pub mod report;
mod response_reader;
pub mod run;
mod session;
pub mod stall;
mod tls;
pub mod user_tcp;
pub mod validity;

pub use load_plan::{failure, malformation, pace, plan};

//! The load generator: a plan, a pace, clients, and the truth about what they saw.
//!
//! `text → Plan → run → Measured → record`. One client loop drives every kind of load: the pace
//! (closed, constant, Poisson), the end (time, count) and the sink are values passed to it. What
//! decides ([`pace`], [`validity`], [`calibrate`], [`plan`]) is pure; [`run`] does the I/O.

#![forbid(unsafe_code)]

mod backlog;
pub mod calibrate;
mod client;
mod collector;
mod core;
mod desk;
pub mod edge;
pub mod failure;
mod flight;
pub mod pace;
pub mod plan;
mod quantiles;
pub mod recorder;
mod reply;
pub mod report;
pub mod run;
pub mod stall;
mod usual_latency;
pub mod validity;

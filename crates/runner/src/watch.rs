//! Targets of a watch: their plan, and the processes, roles and ports that they are.

mod busiest;
pub mod plan;
pub mod targets;

//! Figures of the charts, gathered from the experiment and the records of its trials. [`super::charts`]
//! draws them.

pub(crate) mod cells;
pub(crate) mod comparisons;
pub(crate) mod covariates;
pub(crate) mod cpus;
pub(crate) mod functions;
pub(crate) mod histograms;
pub(crate) mod levels;
pub(crate) mod quantiles;
pub(crate) mod queues;
pub(crate) mod scalings;
pub(crate) mod seconds;
pub(crate) mod settings;
pub(crate) mod sockets;
pub(crate) mod spreads;
pub(crate) mod stack_tree;
pub(crate) mod stacks;
pub(crate) mod trials;
pub(crate) mod typical;

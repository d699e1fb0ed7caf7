//! Text forms of records: of a load the summary, Markdown, CSV, JUnit, OpenMetrics and the output of other load
//! generators; of a search Markdown and JUnit; of an experiment and of a comparison the tables; of a watched machine the rows; of a plan its figures, of the settings of a
//! machine what to change. They read the record only, so a stored one looks the same.

pub mod answer;
pub mod breakdown;
pub mod comparison;
pub mod conclusions;
pub mod csv;
pub mod decision;
pub mod diagnosis;
pub mod edge;
pub mod experiment;
pub mod fleet;
pub mod histogram;
pub mod junit;
pub mod junit_suite;
pub mod layout;
mod live;
pub mod markdown;
pub mod openmetrics;
pub mod peer_format;
pub mod plan;
pub mod plan_markdown;
pub mod run_ratios;
pub mod search_markdown;
pub mod summary;
pub mod table;
pub mod tune;
mod verbose;
pub mod watch;

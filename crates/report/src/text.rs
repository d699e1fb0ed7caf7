//! Text forms of the record of a load: the summary, Markdown, CSV, JUnit, and the output of other load
//! generators. They read the record only, so a stored one looks the same.

pub mod breakdown;
pub mod csv;
pub mod diagnosis;
pub mod fleet;
pub mod histogram;
pub mod junit;
pub mod layout;
pub mod markdown;
pub mod peer_format;
pub mod run_ratios;
pub mod summary;
pub mod table;
mod verbose;

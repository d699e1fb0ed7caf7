//! Files of a directory as responses, `weir serve DIR`: the flags, and their description. `content` has the rest.

mod check;
mod plan;

pub(crate) use check::describe;
pub use plan::FilesPlanText;

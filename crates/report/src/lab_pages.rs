//! Pages of `weir lab serve`: the list of experiments, one that runs, and two side by side.

pub mod html;
mod index;
mod progress;
mod side_by_side;

pub use index::{index, matches_words, minute};
pub use progress::progress_page;
pub use side_by_side::comparison_page;

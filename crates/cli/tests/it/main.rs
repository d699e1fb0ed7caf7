//! The tests of the whole: one binary, one module a theme.

mod tidy;

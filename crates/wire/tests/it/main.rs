//! Integration tests of `wire`: a comparison with another implementation.

mod h2_peer;

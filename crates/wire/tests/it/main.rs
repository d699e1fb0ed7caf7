//! Integration tests of `wire`: replayed corpora, and comparisons with other implementations.

mod corpus;
mod h2_peer;
mod hyper_peer;

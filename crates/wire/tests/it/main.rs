//! Integration tests of `wire`: replayed corpora, and a comparison with another server.

mod corpus;
mod hyper_peer;

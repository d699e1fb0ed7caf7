//! What `wire` shows to the outside: corpora replayed, and another server as the judge.

mod corpus;
mod hyper_peer;

//! A map with the key that it is searched for.

use std::sync::Arc;

use super::{Part, Template, Variable};
use crate::maps::MapStore;

/// A map of a config.
#[derive(Debug, PartialEq, Eq)]
pub struct MapPlan {
    pub name: Box<str>,
    /// Text of a request that is searched for.
    pub key: Template,
    pub store: Arc<MapStore>,
    /// Value of requests without an entry that matches.
    pub default: Option<Box<str>>,
}

impl Template {
    /// Returns the value of a text that is one value without a default.
    pub fn single_variable(&self) -> Option<&Variable> {
        match &*self.parts {
            [Part::Value(variable, default)] if default.is_empty() => Some(variable),
            _ => None,
        }
    }
}

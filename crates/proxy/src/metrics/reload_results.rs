//! Results of the requested reloads, for metrics and for people.

use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadResults {
    pub(crate) applied: u64,
    pub(crate) refused: u64,
    /// Time in nanoseconds since 1970; 0: never.
    pub applied_unix_ns: u64,
    pub refused_unix_ns: u64,
    /// Reason why the last reload was refused; `None`: it was not.
    pub(crate) refusal: Option<Arc<str>>,
}

impl ReloadResults {
    /// Records the result of a reload, with its time since 1970.
    pub fn record(&mut self, refusal: Option<&str>, unix_ns: u64) {
        self.refusal = refusal.map(Arc::from);
        let (count, at_ns) = match refusal {
            None => (&mut self.applied, &mut self.applied_unix_ns),
            Some(_) => (&mut self.refused, &mut self.refused_unix_ns),
        };
        *count += 1;
        *at_ns = unix_ns;
    }

    /// Returns the last result as text for people.
    pub fn summary(&self) -> String {
        match &self.refusal {
            // The first line has the position of the error.
            Some(reason) => format!("refused: {}", reason.lines().next().unwrap_or_default()),
            None if self.applied > 0 => "applied".to_owned(),
            None => "none".to_owned(),
        }
    }
}

//! Percentages of conditions that have a name, which operators change while the proxy runs (`weir ctl percent`).

#![expect(clippy::disallowed_types, reason = "taken when a config is read; requests read an atomic value")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A percentage of the process. All conditions with its name share it, in all plans, so that a change outlives a
/// reload.
#[derive(Debug)]
pub struct NamedPercent {
    name: Box<str>,
    /// Bits of the value that an operator set; those of a NaN: none.
    changed: AtomicU64,
}

impl PartialEq for NamedPercent {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Percentages of the process. One is dropped with the last plan that has it.
static OPEN: Mutex<Vec<Weak<NamedPercent>>> = Mutex::new(Vec::new());

impl NamedPercent {
    /// Returns the percentage with this name.
    pub fn open(name: &str) -> Arc<Self> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|percent| percent.strong_count() > 0);
        if let Some(percent) = open.iter().filter_map(Weak::upgrade).find(|percent| &*percent.name == name) {
            return percent;
        }
        let percent = Arc::new(Self { name: name.into(), changed: AtomicU64::new(f64::NAN.to_bits()) });
        open.push(Arc::downgrade(&percent));
        percent
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value that an operator set; `None`: that of the config counts.
    #[must_use]
    pub fn changed(&self) -> Option<f64> {
        let value = f64::from_bits(self.changed.load(Ordering::Relaxed));
        (!value.is_nan()).then_some(value)
    }

    /// Sets the value for all following requests; `None`: that of the config.
    pub fn change(&self, percent: Option<f64>) {
        self.changed.store(percent.unwrap_or(f64::NAN).to_bits(), Ordering::Relaxed);
    }
}

/// Parses a percentage from 0 to 100.
pub fn parse_percent(text: &str) -> Option<f64> {
    text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_for_all_that_have_the_name() {
        let first = NamedPercent::open("shared by tests");
        let second = NamedPercent::open("shared by tests");
        assert_eq!((first.changed(), NamedPercent::open("another one").changed()), (None, None));
        second.change(Some(0.0));
        assert_eq!(first.changed(), Some(0.0));
        second.change(None);
        assert_eq!(first.changed(), None);
        second.change(Some(25.0));
        drop((first, second));
        assert_eq!(NamedPercent::open("shared by tests").changed(), None);
    }

    #[test]
    fn a_percentage_is_a_number_from_0_to_100() {
        let values = ["0", "12.5", "100"].map(parse_percent);
        assert_eq!(values, [Some(0.0), Some(12.5), Some(100.0)]);
        for wrong in ["", "-1", "100.1", "NaN", "inf", "10%"] {
            assert_eq!(parse_percent(wrong), None, "{wrong}");
        }
    }
}

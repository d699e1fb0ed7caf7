//! Signal of verdicts: a figure of a record with its name, unit and source.

use crate::run_view::RunView;
use crate::unit::Unit;

/// Defines signals by a function of the view.
macro_rules! signals {
    ($($id:ident: $family:ident, $unit:ident, $name:literal, $source:literal, $read:expr;)*) => {
        $(
            #[doc = $name]
            pub static $id: Signal = Signal {
                name: $name,
                family: SignalFamily::$family,
                unit: Unit::$unit,
                source: $source,
                read: $read,
            };
        )*
    };
}

/// Defines signals that are the median of a figure: of a role, or of its machine.
macro_rules! medians {
    ($($id:ident: $family:ident, $name:literal, $median:ident($role:ident, $figure:path);)*) => {
        $(
            #[doc = $name]
            pub static $id: Signal = Signal {
                name: $name,
                family: SignalFamily::$family,
                unit: $figure.unit,
                source: $figure.source,
                read: |view| view.$median($role, $figure.read),
            };
        )*
    };
}

/// Source of a signal; signals of one family may be wrong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SignalFamily {
    Latency,
    Errors,
    /// Figures of the generator about itself.
    Generator,
    Cpu,
    /// Waiting for a CPU, context switches, wake-ups.
    Scheduler,
    /// Unread bytes in sockets.
    Queue,
    /// TCP counters of the whole namespace.
    Counters,
    /// TCP figures of each connection.
    Connections,
    /// Network interfaces and their queues.
    Link,
    Memory,
    Quota,
    Functions,
    Calls,
    Disk,
    Tables,
}

pub struct Signal {
    pub name: &'static str,
    pub family: SignalFamily,
    pub unit: Unit,
    pub source: &'static str,
    pub(crate) read: fn(&RunView<'_>) -> Option<f64>,
}

impl Signal {
    /// Returns the value; `None` if it is not observable. Counters of the kernel's TCP are not where it has no
    /// connection of the run: they would say that nothing happened, or what happened to others.
    pub(crate) fn value(&self, view: &RunView<'_>) -> Option<f64> {
        if self.counts_kernel_tcp() && view.misses_kernel_tcp() {
            return None;
        }
        (self.read)(view).filter(|value| value.is_finite())
    }

    /// Returns whether the value is from counters of the kernel's TCP.
    pub(crate) fn counts_kernel_tcp(&self) -> bool {
        self.family == SignalFamily::Counters && self.source.contains("Tcp")
    }
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

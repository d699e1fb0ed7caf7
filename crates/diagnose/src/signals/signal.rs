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
    /// Latencies, and the requests in flight.
    Latency,
    /// Failed requests.
    Errors,
    /// Figures of the generator about itself.
    Generator,
    /// CPU time.
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
    /// Memory.
    Memory,
    /// Control groups.
    Quota,
    /// Functions on CPUs.
    Functions,
    /// Counted calls.
    Calls,
    /// Disks.
    Disk,
    /// Descriptors and ports.
    Tables,
}

/// Figure of a record.
pub struct Signal {
    /// Name of the figure.
    pub name: &'static str,
    /// Family of the signal.
    pub family: SignalFamily,
    /// Unit for formatting.
    pub unit: Unit,
    /// Source of the figure.
    pub source: &'static str,
    pub(crate) read: fn(&RunView<'_>) -> Option<f64>,
}

impl std::fmt::Debug for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

//! Grid of resources by utilisation, saturation and errors (the USE method of Brendan Gregg): the figures are
//! the signals of the verdicts, so a grid never contradicts a verdict.

use record::run::Run;

use crate::run_view::RunView;
use crate::signals as s;
use crate::signals::Signal;
use crate::unit::format_value;

/// Row of the grid with at least one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridRow {
    pub resource: &'static str,
    /// Used fraction of the resource.
    pub utilisation: Option<GridFigure>,
    /// Work that waits for the resource.
    pub saturation: Option<GridFigure>,
    /// Work that failed because of the resource.
    pub errors: Option<GridFigure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridFigure {
    pub text: String,
    pub label: &'static str,
    /// Complete name of the figure, as in the evidence of a verdict.
    pub name: &'static str,
    pub source: &'static str,
    /// True from the value on that deserves attention.
    pub is_notable: bool,
}

/// Cell of the table: a short name, the signal, and the value from which it deserves attention.
struct Cell(&'static str, &'static Signal, f64);

struct Resource {
    name: &'static str,
    utilisation: Option<Cell>,
    saturation: Option<Cell>,
    errors: Option<Cell>,
}

/// Utilisation from which a resource is near its limit.
const NEAR_FULL: f64 = 0.85;
/// Smallest fraction of failures that deserves attention: one of a thousand requests.
const FAILURES: f64 = 0.001;
/// Events per second that deserve attention.
const EVENTS_PER_S: f64 = 0.1;

const RESOURCES: &[Resource] = &[
    Resource {
        name: "Connections of the load",
        utilisation: Some(Cell("in flight", &s::IN_FLIGHT_FRACTION, NEAR_FULL)),
        saturation: Some(Cell("of the latency is waiting", &s::QUEUEING, 0.4)),
        errors: Some(Cell("of the requests without a good response", &s::ERRORS, FAILURES)),
    },
    Resource {
        name: "Subject's busiest thread",
        utilisation: Some(Cell("of a core", &s::SUBJECT_THREAD, NEAR_FULL)),
        saturation: Some(Cell("waiting for a CPU, of its running time", &s::SUBJECT_WAIT, 0.5)),
        errors: None,
    },
    Resource {
        name: "Subject's CPUs",
        utilisation: Some(Cell("of those it may use", &s::SUBJECT_OVER_ALLOWED, NEAR_FULL)),
        saturation: Some(Cell("of the quota periods throttled", &s::SUBJECT_QUOTA, 0.05)),
        errors: None,
    },
    Resource {
        name: "CPUs of its machine",
        utilisation: Some(Cell("busy", &s::ALL_CPUS, NEAR_FULL)),
        saturation: Some(Cell("CPUs taken by other processes", &s::FOREIGN_CPUS, 0.2)),
        errors: Some(Cell("stolen by the hypervisor", &s::STEAL, 0.05)),
    },
    Resource {
        name: "Memory",
        utilisation: Some(Cell("of the group's limit", &s::MEMORY_USED, NEAR_FULL)),
        saturation: Some(Cell("of the time a task waited for memory", &s::MEMORY_PRESSURE, 0.02)),
        errors: Some(Cell("major faults", &s::MAJOR_FAULTS, 10.0)),
    },
    Resource {
        name: "Disk",
        utilisation: Some(Cell("of the group's limit", &s::DISK_USED, NEAR_FULL)),
        saturation: Some(Cell("of the time a task waited for a disk", &s::DISK_PRESSURE, 0.1)),
        errors: None,
    },
    Resource {
        name: "Network link",
        utilisation: Some(Cell("of its rate", &s::LINK, NEAR_FULL)),
        saturation: Some(Cell("to drain its queue", &s::LINK_QUEUE, 10e6)),
        errors: Some(Cell("packets dropped", &s::LINK_DROPS, EVENTS_PER_S)),
    },
    Resource {
        name: "TCP connections",
        utilisation: None,
        saturation: Some(Cell("of the sending time the receive window was full", &s::RECEIVE_WINDOW, 0.2)),
        errors: Some(Cell("segments retransmitted", &s::RETRANSMITTED, FAILURES)),
    },
    Resource {
        name: "Accept queue",
        utilisation: Some(Cell("of the backlog, at most", &s::ACCEPT_QUEUE, NEAR_FULL)),
        saturation: Some(Cell("of the samples full", &s::LISTENER_FULL, 0.01)),
        errors: Some(Cell("connections refused", &s::LISTEN_OVERFLOWS, EVENTS_PER_S)),
    },
    Resource {
        name: "Descriptors",
        utilisation: Some(Cell("of the subject's limit", &s::DESCRIPTORS, NEAR_FULL)),
        saturation: None,
        errors: Some(Cell("of the requests without one", &s::NO_DESCRIPTOR, FAILURES)),
    },
    Resource {
        name: "Local ports",
        utilisation: Some(Cell("in use", &s::PORTS, NEAR_FULL)),
        saturation: None,
        errors: Some(Cell("of the requests without one", &s::NO_PORT, FAILURES)),
    },
    Resource {
        name: "Connection tracking",
        utilisation: Some(Cell("of its entries", &s::CONNTRACK, NEAR_FULL)),
        saturation: None,
        errors: Some(Cell("packets dropped", &s::CONNTRACK_DROPS, EVENTS_PER_S)),
    },
    Resource {
        name: "Servers behind the subject",
        utilisation: Some(Cell("of their CPU time or busiest thread", &s::ORIGIN_AT_LIMIT, NEAR_FULL)),
        saturation: Some(Cell("of the latency is waiting there", &s::ORIGIN_QUEUEING, 0.3)),
        errors: None,
    },
];

/// Returns the resources with at least one figure in the record.
pub fn resource_grid(run: &Run) -> Vec<GridRow> {
    let view = RunView::new(run);
    let figure = |cell: &Option<Cell>| {
        let Cell(label, signal, notable_from) = cell.as_ref()?;
        let value = signal.value(&view)?;
        Some(GridFigure {
            text: format_value(value, signal.unit),
            label,
            name: signal.name,
            source: signal.source,
            is_notable: value >= *notable_from,
        })
    };
    let row = |resource: &Resource| GridRow {
        resource: resource.name,
        utilisation: figure(&resource.utilisation),
        saturation: figure(&resource.saturation),
        errors: figure(&resource.errors),
    };
    let has_figure = |row: &GridRow| {
        row.utilisation.is_some() || row.saturation.is_some() || is_notable(row.errors.as_ref())
    };
    RESOURCES.iter().map(row).filter(has_figure).collect()
}

fn is_notable(figure: Option<&GridFigure>) -> bool {
    figure.is_some_and(|figure| figure.is_notable)
}

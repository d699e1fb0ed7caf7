//! Screen of a machine, as data: sections, lines, cells and their severity.

/// Section of the screen, in the order of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScreenSection {
    /// Alerts, in sentences.
    Now,
    Cpus,
    /// The watched processes, and their busiest threads.
    Processes,
    /// Network interfaces and their queues.
    Links,
    /// TCP, by network namespace.
    Tcp,
    /// Listening sockets and connections, by port and end.
    Sockets,
    /// Pressure, connection tracking, wakeup latency, and the cost of the observation.
    Machine,
    /// Figures that the machine does not provide, with the reason.
    NotObservable,
}

impl ScreenSection {
    /// All sections, in the order of the screen.
    pub const ALL: [Self; 8] = [
        Self::Now,
        Self::Cpus,
        Self::Processes,
        Self::Links,
        Self::Tcp,
        Self::Sockets,
        Self::Machine,
        Self::NotObservable,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Cpus => "cpus",
            Self::Processes => "processes",
            Self::Links => "links",
            Self::Tcp => "tcp",
            Self::Sockets => "sockets",
            Self::Machine => "machine",
            Self::NotObservable => "not observable",
        }
    }

    /// Explains the figures to a first-time reader.
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Now => {
                "Alerts, the worst first, each with its meaning and a remedy. The rules check the last \
                 10 s, so that a short event stays readable."
            }
            Self::Cpus => {
                "CPU time by use: user space (user), the kernel on behalf of processes (system), \
                 hardware (irq) and software (softirq) interrupts, mostly the network receive path, \
                 and time that the hypervisor gave to other guests (steal)."
            }
            Self::Processes => {
                "CPUs used by each process and its busiest threads. `run-queue wait`: time in which a \
                 thread was runnable and waited for a CPU, as a fraction of the time; `throttled`: \
                 fraction of the periods in which the quota of its cgroup was used up."
            }
            Self::Links => {
                "Bytes and packets of each network interface. `waiting`: bytes in the queueing \
                 discipline, which add latency."
            }
            Self::Tcp => {
                "TCP counters of each network namespace, per second. `overflows`: connections that \
                 found the accept queue full; `timeouts`: expired retransmission timers, each a stall \
                 of 200 ms or more."
            }
            Self::Sockets => {
                "Connections by the port of the server, at both ends. The end with unread bytes does \
                 not keep up."
            }
            Self::Machine => {
                "Pressure: fraction of the time in which some (or all) tasks waited for a resource. \
                 Wakeup latency: delay of a thread that sleeps for 1 ms, per CPU."
            }
            Self::NotObservable => "Figures that this machine does not provide, with the reason.",
        }
    }
}

/// Importance of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    #[default]
    Normal,
    /// Unusual; may be the cause of something.
    Notice,
    /// Something is lost, rejected or delayed.
    Alarm,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenCell {
    /// Name of the figure; empty if the line names it.
    pub name: &'static str,
    /// Figure with its unit; `-` if the machine does not provide it.
    pub text: String,
}

impl ScreenCell {
    pub(super) fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarPart {
    User,
    System,
    /// Interrupts, hard and soft.
    Interrupt,
    /// Taken by the hypervisor.
    Steal,
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScreenLine {
    pub section: ScreenSection,
    /// Subject of the line: `cpu0`, `subject`, `port 8080 server`.
    pub label: String,
    /// Figures, the most important first. Lines with the same names form a table.
    pub cells: Vec<ScreenCell>,
    /// Fraction of the resource in use, from 0 to 1; `None` if unknown.
    pub utilization: Option<f64>,
    /// Parts of that fraction, if it has any; they add up to it.
    pub parts: Vec<(BarPart, f64)>,
    /// Main figure of the line over the last samples, the newest last, for a small graph. Fractions
    /// of the resource if the line has a fraction.
    pub history: Vec<f64>,
    pub severity: Severity,
    /// Reason for the alert, in one sentence; `None` for a normal line.
    pub reason: Option<String>,
}

impl ScreenLine {
    pub(super) fn new(section: ScreenSection, label: impl Into<String>, cells: Vec<ScreenCell>) -> Self {
        Self {
            section,
            label: label.into(),
            cells,
            utilization: None,
            parts: Vec::new(),
            history: Vec::new(),
            severity: Severity::Normal,
            reason: None,
        }
    }

    pub(super) fn with_utilization(mut self, utilization: Option<f64>) -> Self {
        self.utilization = utilization.map(|fraction| fraction.clamp(0.0, 1.0));
        self
    }

    /// Sets the fraction by its parts.
    pub(super) fn with_parts(mut self, parts: Vec<(BarPart, f64)>) -> Self {
        self.utilization = Some(parts.iter().map(|(_, fraction)| fraction).sum::<f64>().clamp(0.0, 1.0));
        self.parts = parts;
        self
    }

    pub(super) fn with_history(mut self, history: Vec<f64>) -> Self {
        self.history = history;
        self
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Screen {
    /// Lines in the order of the screen, the important ones first.
    pub lines: Vec<ScreenLine>,
    pub severity: Severity,
}

/// Formats a fraction as a percentage: `0 %`, `0.12 %`, `37 %`.
pub(super) fn percent(fraction: f64) -> String {
    match fraction * 100.0 {
        value if value.abs() < 0.005 => "0 %".to_owned(),
        value if value.abs() < 0.995 => format!("{value:.2} %"),
        value if value.abs() < 9.95 => format!("{value:.1} %"),
        value => format!("{value:.0} %"),
    }
}

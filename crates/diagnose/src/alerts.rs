//! Content of a live screen of a machine, as data: lines in sections, and alerts on lines, each with
//! one sentence for its reason.
//!
//! Pure: an [`MachineObservation`] goes in, a [`Screen`] comes out. The layout is left to the caller. An alert
//! reports an unusual figure; it does not name the limit of a run.

mod measurements;
mod observation_window;
mod rules;
mod section_lines;

#[cfg(test)]
mod tests;

use record::observed::MachineObservation;

pub use rules::{AlertRule, RULES, RuleUnit};

/// Section of the screen, in the order of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScreenSection {
    /// Alerts, in sentences.
    Now,
    /// Each CPU.
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

    /// Returns the heading.
    #[must_use]
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
    #[must_use]
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
    /// Normal.
    #[default]
    Normal,
    /// Unusual; may be the cause of something.
    Notice,
    /// Something is lost, rejected or delayed.
    Alarm,
}

/// Figure of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenCell {
    /// Name of the figure; empty if the line names it.
    pub name: &'static str,
    /// Figure with its unit; `-` if the machine does not provide it.
    pub text: String,
}

impl ScreenCell {
    fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into() }
    }
}

/// Kind of a part of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarPart {
    /// User space.
    User,
    /// The kernel.
    System,
    /// Interrupts, hard and soft.
    Interrupt,
    /// Taken by the hypervisor.
    Steal,
    /// Any other fraction.
    Other,
}

/// Line of the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct ScreenLine {
    /// Section of the line.
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
    /// Current importance of the line.
    pub severity: Severity,
    /// Reason for the alert, in one sentence; `None` for a normal line.
    pub reason: Option<String>,
}

impl ScreenLine {
    fn new(section: ScreenSection, label: impl Into<String>, cells: Vec<ScreenCell>) -> Self {
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

    fn with_utilization(mut self, utilization: Option<f64>) -> Self {
        self.utilization = utilization.map(|fraction| fraction.clamp(0.0, 1.0));
        self
    }

    /// Sets the fraction by its parts.
    fn with_parts(mut self, parts: Vec<(BarPart, f64)>) -> Self {
        self.utilization = Some(parts.iter().map(|(_, fraction)| fraction).sum::<f64>().clamp(0.0, 1.0));
        self.parts = parts;
        self
    }

    fn with_history(mut self, history: Vec<f64>) -> Self {
        self.history = history;
        self
    }
}

/// Lengths of the recent past that a screen uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScreenWindows {
    /// Length of the last samples whose means are shown, in seconds; at least one sample.
    pub display_s: f64,
    /// Length that the rules check, in seconds.
    pub rule_s: f64,
}

/// A live screen: figures of the last sample, rules over 10 s.
pub const LIVE_WINDOWS: ScreenWindows = ScreenWindows { display_s: 1.0, rule_s: 10.0 };

/// Content of the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Screen {
    /// Lines in the order of the screen, the important ones first.
    pub lines: Vec<ScreenLine>,
    /// The worst severity.
    pub severity: Severity,
}

/// Finding of a rule.
#[derive(Clone, Debug, PartialEq)]
struct Finding {
    rule: &'static AlertRule,
    section: ScreenSection,
    label: String,
    sentence: String,
}

/// Builds the screen from the observation so far. Empty sections are left out.
#[must_use]
pub fn screen(observed: &MachineObservation, windows: ScreenWindows) -> Screen {
    let findings =
        rules::evaluate_rules(&observation_window::ObservationWindow::over_last(observed, windows.rule_s));
    let mut lines = now_lines(&findings, windows.rule_s, observed);
    lines.extend(section_lines::all_lines(&observation_window::ObservationWindow::over_last(
        observed,
        windows.display_s,
    )));
    for finding in findings.iter().rev() {
        let matches_line =
            |line: &&mut ScreenLine| line.section == finding.section && line.label == finding.label;
        for line in lines.iter_mut().filter(matches_line) {
            // The list begins with the worst finding, so that it is written last.
            line.severity = finding.rule.severity;
            line.reason = Some(finding.sentence.clone());
        }
    }
    let severity = findings.iter().map(|finding| finding.rule.severity).max().unwrap_or_default();
    Screen { lines, severity }
}

/// Returns the lines of the top section.
fn now_lines(findings: &[Finding], rule_s: f64, observed: &MachineObservation) -> Vec<ScreenLine> {
    let observed_s: f64 = observed.samples.iter().map(|sample| sample.length_s).sum();
    if observed.samples.is_empty() {
        let cells = vec![ScreenCell::new("", "waiting for the first sample")];
        return vec![ScreenLine::new(ScreenSection::Now, "", cells)];
    }
    if findings.is_empty() {
        let observed_s = observed_s.min(rule_s);
        let cells = vec![ScreenCell::new("", format!("no alerts in the last {observed_s:.0} s"))];
        return vec![ScreenLine::new(ScreenSection::Now, "calm", cells)];
    }
    let mut lines: Vec<ScreenLine> = Vec::new();
    for (index, finding) in findings.iter().enumerate() {
        // A finding about several lines is reported for the worst of them, with the names of the
        // others.
        let has_same_rule = |other: &&Finding| other.rule == finding.rule;
        if findings[..index].iter().any(|other| has_same_rule(&other)) {
            continue;
        }
        let others: Vec<&str> =
            findings[index + 1..].iter().filter(has_same_rule).map(|other| other.label.as_str()).collect();
        let text = format!("{}{}", finding.sentence, others_text(&others));
        let mut line =
            ScreenLine::new(ScreenSection::Now, finding.label.clone(), vec![ScreenCell::new("", text)]);
        line.severity = finding.rule.severity;
        line.reason = Some(format!("{}; {}", finding.rule.description, finding.rule.source));
        lines.push(line);
    }
    lines
}

/// Returns the other lines with the same finding.
fn others_text(others: &[&str]) -> String {
    /// Maximum number of names in the list; the rest is counted.
    const NAMES_MAX: usize = 3;
    match others.len() {
        0 => String::new(),
        few if few <= NAMES_MAX => format!(" Also: {}.", others.join(", ")),
        many => format!(" Also: {} and {} more.", others[..NAMES_MAX].join(", "), many - NAMES_MAX),
    }
}

/// Formats a fraction as a percentage: `0 %`, `0.12 %`, `37 %`.
fn percent(fraction: f64) -> String {
    match fraction * 100.0 {
        value if value.abs() < 0.005 => "0 %".to_owned(),
        value if value.abs() < 0.995 => format!("{value:.2} %"),
        value if value.abs() < 9.95 => format!("{value:.1} %"),
        value => format!("{value:.0} %"),
    }
}

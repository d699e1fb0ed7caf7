//! What a screen shows of a machine that is watched, as data: lines in sections, and which of them
//! matter now, each with one sentence that says why.
//!
//! Pure: an [`Observed`] goes in, a [`Screen`] comes out. How lines look is decided by who shows
//! them. What limited a run is not decided here either: a mark says that a figure is unusual.

mod lines;
mod readings;
mod rules;
mod view;

#[cfg(test)]
mod tests;

use record::observed::Observed;

pub use rules::{RULES, Rule, Unit};

/// Which part of the screen a line belongs to, in the order of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// What matters now, in sentences.
    Now,
    /// Each processor.
    Processors,
    /// The watched programs, and their busiest threads.
    Programs,
    /// Network interfaces and their queues.
    Links,
    /// TCP, by network namespace.
    Tcp,
    /// Listening sockets and connections, by port and end.
    Sockets,
    /// Pressure, connection tracking, wake-up lag, and what the watching costs.
    Machine,
    /// What the machine does not tell, and why.
    NotObservable,
}

impl Section {
    /// All of them, in the order of the screen.
    pub const ALL: [Self; 8] = [
        Self::Now,
        Self::Processors,
        Self::Programs,
        Self::Links,
        Self::Tcp,
        Self::Sockets,
        Self::Machine,
        Self::NotObservable,
    ];

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Processors => "processors",
            Self::Programs => "programs",
            Self::Links => "links",
            Self::Tcp => "tcp",
            Self::Sockets => "sockets",
            Self::Machine => "machine",
            Self::NotObservable => "not observable",
        }
    }

    /// What its figures mean, for whoever sees them for the first time.
    #[must_use]
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Now => {
                "Figures that are unusual, the worst first, each with what it means and what to do. \
                 They are judged over the last 10 s, so that a short event can still be read."
            }
            Self::Processors => {
                "Shares of each processor's time: programs (user), the kernel for programs \
                 (system), hardware (irq) and software (softirq) interrupts, which are mostly the \
                 network's receive path, and what the hypervisor gave to others (steal)."
            }
            Self::Programs => {
                "Processors used by each program, and by its busiest threads. `waits` is time in \
                 which a thread was ready and had to wait for a processor, as a share of the time; \
                 `throttled` is the share of periods in which its control group's quota was used up."
            }
            Self::Links => {
                "Bytes and packets of each network interface. `waiting` are bytes in the queueing \
                 discipline, which come out as latency."
            }
            Self::Tcp => {
                "Counters of TCP in each network namespace, per second. `overflows`: clients that \
                 found the queue of a listening socket full; `timeouts`: retransmission timers that \
                 ran out, each a pause of 200 ms or more."
            }
            Self::Sockets => {
                "Connections by the port that the server listens on, at both ends. The end that \
                 holds unread bytes is the one that does not keep up."
            }
            Self::Machine => {
                "Pressure: share of the time in which some (or all) tasks waited for a resource. \
                 Wake-up lag: how late a thread that sleeps for 1 ms wakes up on each processor."
            }
            Self::NotObservable => "Figures that this machine does not tell, and why.",
        }
    }
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// As it should be.
    #[default]
    Calm,
    /// Unusual; may be the cause of something.
    Notice,
    /// Something is lost, refused or held up.
    Alarm,
}

/// One figure of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What it is; empty where the line says it.
    pub name: &'static str,
    /// The figure with its unit; `-` where the machine does not tell.
    pub text: String,
}

impl Cell {
    fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, text: text.into() }
    }
}

/// What a part of a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// User space.
    User,
    /// The kernel.
    System,
    /// Interrupts, hard and soft.
    Interrupt,
    /// Taken by the hypervisor.
    Steal,
    /// Any other share.
    Share,
}

/// One line of the screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Where it stands.
    pub section: Section,
    /// What it is about: `cpu0`, `subject`, `port 8080 server`.
    pub label: String,
    /// Its figures, the most important first. Lines with the same names make a table.
    pub cells: Vec<Cell>,
    /// How much of the resource is in use, from 0 to 1, where that can be said.
    pub share: Option<f64>,
    /// The parts of that share, where it has some; they add up to it.
    pub parts: Vec<(PartKind, f64)>,
    /// Its main figure over the last samples, the newest last; for a small graph. Shares of the
    /// resource where the line has a share.
    pub history: Vec<f64>,
    /// How much it matters now.
    pub mark: Mark,
    /// Why, in one sentence; none for a calm line.
    pub why: Option<String>,
}

impl Line {
    fn new(section: Section, label: impl Into<String>, cells: Vec<Cell>) -> Self {
        Self {
            section,
            label: label.into(),
            cells,
            share: None,
            parts: Vec::new(),
            history: Vec::new(),
            mark: Mark::Calm,
            why: None,
        }
    }

    fn share(mut self, share: Option<f64>) -> Self {
        self.share = share.map(|share| share.clamp(0.0, 1.0));
        self
    }

    /// A share in parts.
    fn parts(mut self, parts: Vec<(PartKind, f64)>) -> Self {
        self.share = Some(parts.iter().map(|(_, share)| share).sum::<f64>().clamp(0.0, 1.0));
        self.parts = parts;
        self
    }

    fn history(mut self, history: Vec<f64>) -> Self {
        self.history = history;
        self
    }
}

/// Which part of what was seen a screen is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spans {
    /// Figures are means over the last samples of this length, in seconds; one at the least.
    pub shown_s: f64,
    /// Rules look at this much.
    pub judged_s: f64,
}

/// A live screen: figures of the last sample, rules over 10 s.
pub const LIVE: Spans = Spans { shown_s: 1.0, judged_s: 10.0 };

/// The screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Screen {
    /// In the order of the screen: what matters now first.
    pub lines: Vec<Line>,
    /// The worst mark.
    pub mark: Mark,
}

/// What was found by a rule.
#[derive(Clone, Debug, PartialEq)]
struct Finding {
    rule: &'static Rule,
    section: Section,
    label: String,
    sentence: String,
}

/// The screen of what was seen until now; empty sections are left out.
#[must_use]
pub fn screen(observed: &Observed, spans: Spans) -> Screen {
    let findings = rules::find(&view::View::new(observed, spans.judged_s));
    let mut lines = now(&findings, spans.judged_s, observed);
    lines.extend(lines::all(&view::View::new(observed, spans.shown_s)));
    for finding in findings.iter().rev() {
        let is_of =
            |line: &&mut Line| line.section == finding.section && line.label == finding.label;
        for line in lines.iter_mut().filter(is_of) {
            // The worst come first in the list, so they are written last.
            line.mark = finding.rule.mark;
            line.why = Some(finding.sentence.clone());
        }
    }
    let mark = findings.iter().map(|finding| finding.rule.mark).max().unwrap_or_default();
    Screen { lines, mark }
}

/// The section on top.
fn now(findings: &[Finding], judged_s: f64, observed: &Observed) -> Vec<Line> {
    let seen_s: f64 = observed.samples.iter().map(|sample| sample.length_s).sum();
    if observed.samples.is_empty() {
        let cells = vec![Cell::new("", "the first sample is being taken")];
        return vec![Line::new(Section::Now, "", cells)];
    }
    if findings.is_empty() {
        let seen_s = seen_s.min(judged_s);
        let cells = vec![Cell::new("", format!("nothing stands out in the last {seen_s:.0} s"))];
        return vec![Line::new(Section::Now, "calm", cells)];
    }
    let mut lines: Vec<Line> = Vec::new();
    for (at, finding) in findings.iter().enumerate() {
        // What holds for several lines is said of the worst of them, with the names of the others.
        let of_rule = |other: &&Finding| other.rule == finding.rule;
        if findings[..at].iter().any(|other| of_rule(&other)) {
            continue;
        }
        let others: Vec<&str> =
            findings[at + 1..].iter().filter(of_rule).map(|other| other.label.as_str()).collect();
        let text = format!("{}{}", finding.sentence, also(&others));
        let mut line = Line::new(Section::Now, finding.label.clone(), vec![Cell::new("", text)]);
        line.mark = finding.rule.mark;
        line.why = Some(format!("{}; {}", finding.rule.looks_at, finding.rule.source));
        lines.push(line);
    }
    lines
}

/// Other lines of which the same is true.
fn also(others: &[&str]) -> String {
    /// Names that are listed; of the others only the number.
    const NAMES: usize = 3;
    match others.len() {
        0 => String::new(),
        few if few <= NAMES => format!(" The same of {}.", others.join(", ")),
        many => format!(" The same of {} and {} more.", others[..NAMES].join(", "), many - NAMES),
    }
}

/// A share as a percentage: `0 %`, `0.12 %`, `37 %`.
fn percent(share: f64) -> String {
    match share * 100.0 {
        value if value.abs() < 0.005 => "0 %".to_owned(),
        value if value.abs() < 0.995 => format!("{value:.2} %"),
        value if value.abs() < 9.95 => format!("{value:.1} %"),
        value => format!("{value:.0} %"),
    }
}

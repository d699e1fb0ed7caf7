//! Whether a server is up, by what its checks bring. Pure: verdicts and chance in, state and waits
//! out.
//!
//! ```text
//!              passes                    fails, `fall` in a row
//! unchecked ----------> up --------------------------------------> down
//!     |                 ^                                            ^ |
//!     | fails           '------ passes, `rise` in a row -------------|-'
//!     '--------------------------------------------------------------'
//! ```
//!
//! A server that is not checked yet counts as up, but nothing is known in its favour: one check that
//! fails is enough. What an agent says of its server holds at once.

use rt::clock::MILLISECOND_NS;

use crate::plan::CheckPlan;
use crate::pool::Checked;

/// What one check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is as it should be.
    Pass,
    /// Something is not.
    Fail,
    /// An agent says that the server is up.
    SaysUp,
    /// An agent says that the server is down: nothing else but its word makes it come up.
    SaysDown,
}

/// What is known of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    checked: Checked,
    /// Checks in a row that say otherwise than `checked`.
    against: u32,
    /// Whether an agent said that it is down.
    said_down: bool,
}

/// A server that was up is down, or the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) is_up: bool,
    /// After so many checks in a row.
    pub(crate) after: u32,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { checked: Checked::Unchecked, against: 0, said_down: false }
    }

    pub(crate) fn checked(&self) -> Checked {
        self.checked
    }

    /// Takes in what a check says.
    pub(crate) fn note(&mut self, verdict: Verdict, plan: &CheckPlan) -> Option<Change> {
        let (is_well, at_once) = match verdict {
            Verdict::Pass => (true, false),
            Verdict::Fail => (false, false),
            Verdict::SaysUp => (true, true),
            Verdict::SaysDown => (false, true),
        };
        if at_once {
            self.said_down = !is_well;
        }
        let needed = match (self.checked, is_well) {
            (Checked::Up, true) | (Checked::Down, false) => {
                self.against = 0;
                return None;
            }
            (Checked::Down, true) if self.said_down => return None,
            (Checked::Unchecked, _) => 1,
            _ if at_once => 1,
            (Checked::Up, false) => plan.fall,
            (Checked::Down, true) => plan.rise,
        };
        self.against += 1;
        if self.against < needed {
            return None;
        }
        let after = std::mem::take(&mut self.against);
        let before = self.checked;
        self.checked = if is_well { Checked::Up } else { Checked::Down };
        // It counted as up before.
        (before != Checked::Unchecked || !is_well).then_some(Change { is_up: is_well, after })
    }

    /// How long to wait from one check to the next; `chance` is from 0 to 1.
    pub(crate) fn wait_ns(&self, plan: &CheckPlan, chance: f64) -> u64 {
        let interval_ns = match self.checked {
            _ if self.against > 0 => plan.fast_interval_ns,
            Checked::Down => plan.down_interval_ns,
            Checked::Up | Checked::Unchecked => plan.interval_ns,
        };
        let factor = 1.0 + plan.jitter * (2.0 * chance - 1.0);
        ((interval_ns as f64 * factor) as u64).max(MILLISECOND_NS)
    }

    /// How long to wait before the very first one: so that servers are not checked all at once.
    pub(crate) fn first_wait_ns(plan: &CheckPlan, chance: f64) -> u64 {
        (plan.interval_ns as f64 * plan.jitter * chance) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::CheckKind;

    fn plan() -> CheckPlan {
        CheckPlan {
            kind: CheckKind::Tcp,
            address: None,
            port: None,
            interval_ns: 1_000 * MILLISECOND_NS,
            fast_interval_ns: 100 * MILLISECOND_NS,
            down_interval_ns: 5_000 * MILLISECOND_NS,
            timeout_ns: 1,
            rise: 2,
            fall: 3,
            jitter: 0.1,
        }
    }

    /// Verdicts by letters: `+` and `-` of checks, `u` and `d` of an agent. States after each.
    fn run(verdicts: &str) -> String {
        let mut machine = Machine::new();
        let state = |machine: &Machine| match machine.checked() {
            Checked::Unchecked => '?',
            Checked::Up => 'U',
            Checked::Down => 'D',
        };
        let step = |letter| {
            let verdict = match letter {
                '+' => Verdict::Pass,
                '-' => Verdict::Fail,
                'u' => Verdict::SaysUp,
                _ => Verdict::SaysDown,
            };
            let before = state(&machine);
            let change = machine.note(verdict, &plan());
            let after = state(&machine);
            let told = before != after && !(before == '?' && after == 'U');
            assert_eq!(change.is_some(), told, "{verdicts}");
            after
        };
        verdicts.chars().map(step).collect()
    }

    #[test]
    fn rise_and_fall() {
        for (verdicts, states) in [
            ("+", "U"),
            ("-", "D"),
            ("+---", "UUUD"),
            ("+--+--+", "UUUUUUU"),
            ("-++", "DDU"),
            ("-+-++---", "DDDDUUUD"),
            ("+---+++", "UUUDDUU"),
            // What an agent says holds at once, and only its word undoes it.
            ("+d", "UD"),
            ("+du", "UDU"),
            ("+d+++u", "UDDDDU"),
            ("-u", "DU"),
            ("u--+---", "UUUUUUD"),
            ("+---d++", "UUUDDDD"),
            ("d---u", "DDDDU"),
        ] {
            assert_eq!(run(verdicts), states, "{verdicts}");
        }
    }

    #[test]
    fn a_change_says_after_how_many() {
        let mut machine = Machine::new();
        machine.note(Verdict::Pass, &plan());
        let changes: Vec<_> = (0..3).filter_map(|_| machine.note(Verdict::Fail, &plan())).collect();
        assert_eq!(changes, [Change { is_up: false, after: 3 }]);
        let changes: Vec<_> = (0..2).filter_map(|_| machine.note(Verdict::Pass, &plan())).collect();
        assert_eq!(changes, [Change { is_up: true, after: 2 }]);
    }

    #[test]
    fn the_interval_follows_the_state_and_chance() {
        let mut machine = Machine::new();
        let ms = |machine: &Machine, chance| machine.wait_ns(&plan(), chance) / MILLISECOND_NS;
        assert_eq!([0.0, 0.5, 1.0].map(|chance| ms(&machine, chance)), [900, 1_000, 1_100]);
        machine.note(Verdict::Pass, &plan());
        machine.note(Verdict::Fail, &plan());
        assert_eq!(ms(&machine, 0.5), 100);
        machine.note(Verdict::Fail, &plan());
        machine.note(Verdict::Fail, &plan());
        assert_eq!(ms(&machine, 0.5), 5_000);
        machine.note(Verdict::Pass, &plan());
        assert_eq!(ms(&machine, 0.5), 100);
        machine.note(Verdict::Pass, &plan());
        assert_eq!(ms(&machine, 0.5), 1_000);
        let first = |chance| Machine::first_wait_ns(&plan(), chance) / MILLISECOND_NS;
        assert_eq!((first(0.0), first(1.0)), (0, 100));
        let wild = CheckPlan { jitter: 1.0, ..plan() };
        assert_eq!(machine.wait_ns(&wild, 0.0), MILLISECOND_NS);
    }
}

//! State machine that decides from check results whether a server is up. Pure: outcomes and random
//! numbers in, states and wait times out.
//!
//! ```text
//!              passes                    fails, `fall` in a row
//! unchecked ----------> up --------------------------------------> down
//!     |                 ^                                            ^ |
//!     | fails           '------ passes, `rise` in a row -------------|-'
//!     '--------------------------------------------------------------'
//! ```
//!
//! A server that is not checked yet counts as up, but without any passed check: one failed check is
//! enough. An agent's statement about its server takes effect at once.

use rt::clock::MILLISECOND_NS;

use crate::plan::CheckPlan;
use crate::pool::CheckStatus;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    Pass,
    Fail,
    AgentUp,
    /// An agent reports the server as down: only another report of the agent brings it up again.
    AgentDown,
}

/// State of the checks of a server; before the first one it is unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckStateMachine {
    check_status: CheckStatus,
    /// Number of consecutive checks that contradict `check_status`.
    contradicting: u32,
    /// True if an agent reported the server as down.
    is_agent_down: bool,
}

/// Transition of a server from up to down or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTransition {
    pub is_up: bool,
    /// Number of consecutive checks that caused it.
    pub check_count: u32,
}

impl CheckStateMachine {
    pub fn check_status(&self) -> CheckStatus {
        self.check_status
    }

    pub fn record(&mut self, verdict: CheckOutcome, plan: &CheckPlan) -> Option<StateTransition> {
        let (is_healthy, is_immediate) = match verdict {
            CheckOutcome::Pass => (true, false),
            CheckOutcome::Fail => (false, false),
            CheckOutcome::AgentUp => (true, true),
            CheckOutcome::AgentDown => (false, true),
        };
        if is_immediate {
            self.is_agent_down = !is_healthy;
        }
        let required = match (self.check_status, is_healthy) {
            (CheckStatus::Up, true) | (CheckStatus::Down, false) => {
                self.contradicting = 0;
                return None;
            }
            (CheckStatus::Down, true) if self.is_agent_down => return None,
            (CheckStatus::Unchecked, _) => 1,
            _ if is_immediate => 1,
            (CheckStatus::Up, false) => plan.fall,
            (CheckStatus::Down, true) => plan.rise,
        };
        self.contradicting += 1;
        if self.contradicting < required {
            return None;
        }
        let check_count = std::mem::take(&mut self.contradicting);
        let previous = self.check_status;
        self.check_status = if is_healthy { CheckStatus::Up } else { CheckStatus::Down };
        // An unchecked server counted as up before.
        (previous != CheckStatus::Unchecked || !is_healthy)
            .then_some(StateTransition { is_up: is_healthy, check_count })
    }

    /// Returns the wait time between two checks; `random` is from 0 to 1.
    pub fn wait_ns(&self, plan: &CheckPlan, random: f64) -> u64 {
        let interval_ns = match self.check_status {
            _ if self.contradicting > 0 => plan.fast_interval_ns,
            CheckStatus::Down => plan.down_interval_ns,
            CheckStatus::Up | CheckStatus::Unchecked => plan.interval_ns,
        };
        let factor = 1.0 + plan.jitter * (2.0 * random - 1.0);
        ((interval_ns as f64 * factor) as u64).max(MILLISECOND_NS)
    }

    /// Returns the wait time before the very first check, so that not all servers are checked at
    /// once.
    pub fn first_wait_ns(plan: &CheckPlan, random: f64) -> u64 {
        (plan.interval_ns as f64 * plan.jitter * random) as u64
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
            uses_tls: false,
            http: crate::plan::ServerHttp::Http11,
        }
    }

    /// Outcomes as letters: `+` and `-` for checks, `u` and `d` for an agent. Returns the states
    /// after each.
    fn run(verdicts: &str) -> String {
        let mut state_machine = CheckStateMachine::default();
        let state = |state_machine: &CheckStateMachine| match state_machine.check_status() {
            CheckStatus::Unchecked => '?',
            CheckStatus::Up => 'U',
            CheckStatus::Down => 'D',
        };
        let step = |letter| {
            let verdict = match letter {
                '+' => CheckOutcome::Pass,
                '-' => CheckOutcome::Fail,
                'u' => CheckOutcome::AgentUp,
                _ => CheckOutcome::AgentDown,
            };
            let previous = state(&state_machine);
            let transition = state_machine.record(verdict, &plan());
            let current = state(&state_machine);
            let is_reported = previous != current && !(previous == '?' && current == 'U');
            assert_eq!(transition.is_some(), is_reported, "{verdicts}");
            current
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
            // An agent's report takes effect at once, and only another report undoes it.
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
    fn a_transition_has_the_number_of_checks() {
        let mut state_machine = CheckStateMachine::default();
        state_machine.record(CheckOutcome::Pass, &plan());
        let changes: Vec<_> =
            (0..3).filter_map(|_| state_machine.record(CheckOutcome::Fail, &plan())).collect();
        assert_eq!(changes, [StateTransition { is_up: false, check_count: 3 }]);
        let changes: Vec<_> =
            (0..2).filter_map(|_| state_machine.record(CheckOutcome::Pass, &plan())).collect();
        assert_eq!(changes, [StateTransition { is_up: true, check_count: 2 }]);
    }

    #[test]
    fn the_interval_follows_the_state_and_chance() {
        let mut state_machine = CheckStateMachine::default();
        let ms = |state_machine: &CheckStateMachine, chance| {
            state_machine.wait_ns(&plan(), chance) / MILLISECOND_NS
        };
        assert_eq!([0.0, 0.5, 1.0].map(|chance| ms(&state_machine, chance)), [900, 1_000, 1_100]);
        state_machine.record(CheckOutcome::Pass, &plan());
        state_machine.record(CheckOutcome::Fail, &plan());
        assert_eq!(ms(&state_machine, 0.5), 100);
        state_machine.record(CheckOutcome::Fail, &plan());
        state_machine.record(CheckOutcome::Fail, &plan());
        assert_eq!(ms(&state_machine, 0.5), 5_000);
        state_machine.record(CheckOutcome::Pass, &plan());
        assert_eq!(ms(&state_machine, 0.5), 100);
        state_machine.record(CheckOutcome::Pass, &plan());
        assert_eq!(ms(&state_machine, 0.5), 1_000);
        let first_wait_ms = |chance| CheckStateMachine::first_wait_ns(&plan(), chance) / MILLISECOND_NS;
        assert_eq!((first_wait_ms(0.0), first_wait_ms(1.0)), (0, 100));
        let with_full_jitter = CheckPlan { jitter: 1.0, ..plan() };
        assert_eq!(state_machine.wait_ns(&with_full_jitter, 0.0), MILLISECOND_NS);
    }
}

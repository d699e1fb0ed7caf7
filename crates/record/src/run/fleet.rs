//! A run as that of an agent of a fleet, and the CPUs that several agents of a run share.

use super::Run;
use crate::fleet::AgentFigures;
use crate::validity::{CPU_CONTENDED, FOREIGN_CPU_FRACTION_MAX, Validity, ValidityLevel, ValidityReason};

impl Run {
    /// Returns the figures of this record for the row of the agent that wrote it.
    pub fn agent_figures(&self) -> AgentFigures {
        AgentFigures {
            host: self.host.clone(),
            requests: self.totals.requests,
            responses: self.totals.responses,
            failed: self.totals.failed(),
            responses_per_s: self.rates.responses_per_s,
            p50_ns: self.latency.last_byte.response.p50_ns,
            p99_ns: self.latency.last_byte.response.p99_ns,
            busiest_thread_fraction: self.generator.busiest_thread_fraction,
            validity: self.validity.clone(),
        }
    }

    /// Withdraws the objections of agents to other processes on their CPUs that were roles of the same run: an
    /// agent cannot know that another one on its kernel belongs to the run. Called when the run has all
    /// observations.
    pub fn withdraw_shared_cpus(&mut self) {
        let Some(fleet) = &mut self.fleet else { return };
        let mut is_withdrawn = false;
        let (from_s, to_s) = (self.window.from_s, self.window.to_s);
        for agent in &mut fleet.agents {
            let Some(figures) = &mut agent.figures else { continue };
            let observed = self
                .observed
                .iter()
                .find(|observation| observation.host == agent.name && observation.kernel.is_some());
            let Some(observed) = observed else { continue };
            let foreign = observed.foreign_cpus_among(&self.observed, from_s, to_s);
            let limit = FOREIGN_CPU_FRACTION_MAX * f64::from(observed.cpus.max(1));
            // A figure that is unknown, or as large as without the others, proves nothing.
            let alone = observed.foreign_cpus(from_s, to_s);
            if foreign.is_none_or(|cpus| cpus > limit) || foreign == alone {
                continue;
            }
            figures.validity = without_reason(&figures.validity, |reason| reason.code == CPU_CONTENDED);
            is_withdrawn = true;
            let own = format!("agent {}: ", agent.name);
            self.validity = without_reason(&self.validity, |reason| {
                reason.code == CPU_CONTENDED && reason.text.starts_with(&own)
            });
        }
        let worst = self.validity.verdict;
        for objective in self.objectives.iter_mut().filter(|_| is_withdrawn) {
            objective.validity = objective.validity.map(|verdict| verdict.min(worst));
        }
    }
}

/// Returns a validity without some of its reasons: no conclusion is worse than the reasons that remain.
fn without_reason(validity: &Validity, is_withdrawn: impl Fn(&ValidityReason) -> bool) -> Validity {
    let kept = validity.reasons.iter().filter(|reason| !is_withdrawn(reason));
    let mut remaining = Validity::from_reasons(kept.cloned().collect());
    remaining.conclusions.clone_from(&validity.conclusions);
    for conclusion in &mut remaining.conclusions {
        conclusion.verdict = conclusion.verdict.min(remaining.verdict);
        conclusion.undisturbed =
            conclusion.undisturbed.filter(|_| conclusion.verdict != ValidityLevel::Valid);
    }
    remaining
}

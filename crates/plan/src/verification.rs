//! Verification of a plan: its size on one machine, the predictions for it, and the comparison with a
//! measurement.

use record::invalid_value;
use record::problem::InvalidValue;
use serde::Serialize;

use crate::inputs::Inputs;
use crate::queueing::SlotPool;
use crate::sizing::Sizing;
use crate::subject_queue::SubjectQueue;

/// Maximum relative difference of a measured figure from its prediction.
pub const TOLERANCE: f64 = 0.15;
/// Highest rate of a verification, per second: one machine carries all roles.
const RATE_PER_S_MAX: f64 = 1_500.0;
/// Largest backlog of a verification: each queued request is a connection.
const BACKLOG_MAX: f64 = 6_000.0;
/// Longest drain of a verification, in s; a longer one is no result within a bounded time.
const DRAIN_S_MAX: f64 = 60.0;
/// Highest coefficient of variation of a service time: means of a verification's length vary too much beyond it.
const SERVICE_CV_MAX: f64 = 3.0;
const SERVERS_MAX: u64 = 16;

/// Plan of the size that one machine can carry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerifiedPlan {
    /// Fraction of the plan's rate and slots; 1 is the plan itself.
    pub scale: f64,
    pub rate_per_s: f64,
    /// Mean service time, in s; after the baseline the measured one.
    pub service_s: f64,
    /// Mean service time with all slots busy, in s; after the baseline the measured one.
    pub loaded_service_s: f64,
    /// Service time of the plan, in s: the delay of the servers.
    pub delay_s: f64,
    /// Coefficient of variation of the service time.
    pub service_cv: f64,
    pub servers: u64,
    /// Concurrent requests of each.
    pub maxconn: u64,
    pub stall_s: f64,
    /// Multiple of the rate in the overload.
    pub overload: f64,
    pub queue_s: f64,
    pub queue_limit: u64,
}

/// Plan that was run, and its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// Queue of the subject, on which the predictions depend.
    pub queue: SubjectQueue,
    /// Plan that was run.
    pub plan: VerifiedPlan,
    /// Figures of the run beside their predictions.
    pub comparisons: Vec<Comparison>,
}

/// Prediction and measurement of one figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub name: &'static str,
    /// Unit: `requests`, `s`, `1/s`.
    pub unit: &'static str,
    pub predicted: f64,
    /// Measured value; absent if it cannot be observed.
    pub measured: Option<f64>,
    /// Measured divided by predicted.
    pub ratio: Option<f64>,
    /// True if the ratio is within [`TOLERANCE`] of 1; absent without a measured value.
    pub holds: Option<bool>,
    /// Reason why there is no measured value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_observable: Option<&'static str>,
}

impl Comparison {
    fn new(name: &'static str, unit: &'static str, predicted: f64, measured: MeasuredFigure) -> Self {
        let ratio = measured.ok().map(|measured| measured / predicted.max(1e-9));
        Self {
            name,
            unit,
            predicted,
            measured: measured.ok(),
            ratio,
            holds: ratio.map(|ratio| (ratio - 1.0).abs() <= TOLERANCE),
            not_observable: measured.err(),
        }
    }
}

/// Measured value, or the reason why it cannot be observed.
pub type MeasuredFigure = Result<f64, &'static str>;

/// Measured figures of a verification.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Mean connections to the servers in use, in steady state.
    pub busy_connections: MeasuredFigure,
    /// Longest queue after the stall, without a bound.
    pub backlog: MeasuredFigure,
    /// Time until it had drained, in s.
    pub drain_s: MeasuredFigure,
    /// Longest queue after the stall, with the bounds of the plan.
    pub bounded_backlog: MeasuredFigure,
    /// Good responses per second in the overload.
    pub goodput_per_s: MeasuredFigure,
    /// Mean connections to the servers in use in the overload.
    pub overload_connections: MeasuredFigure,
}

impl Default for Measured {
    fn default() -> Self {
        const MISSING: MeasuredFigure = Err("not measured");
        Self {
            busy_connections: MISSING,
            backlog: MISSING,
            drain_s: MISSING,
            bounded_backlog: MISSING,
            goodput_per_s: MISSING,
            overload_connections: MISSING,
        }
    }
}

impl VerifiedPlan {
    /// Scales a plan down to one machine, if necessary.
    ///
    /// # Errors
    /// The plan cannot be verified; the error says why.
    pub fn new(sizing: &Sizing, inputs: &Inputs) -> Result<Self, InvalidValue> {
        let service_s = inputs.number("service").ok_or_else(|| invalid_value!("needs --service"))?;
        let slots = sizing.value("slots").ok_or_else(|| {
            invalid_value!("needs servers with a limit: --servers and --maxconn, or --backend")
        })?;
        if let Some(own) =
            sizing.backends.iter().find(|backend| backend.rate_per_s.is_some() || backend.service_s.is_some())
        {
            return Err(invalid_value!(
                "backend '{}' has a rate or a service time of its own, and a verification has one pool of servers: \
                 verify each backend alone, with --rate, --service, --servers and --maxconn",
                own.name
            ));
        }
        let (rate, stall_s) = (inputs.default_number("rate"), inputs.default_number("stall"));
        let utilisation = rate * service_s / slots;
        if utilisation >= 1.0 {
            return Err(invalid_value!("the plan is overloaded: nothing drains"));
        }
        let scale = (RATE_PER_S_MAX / rate).min(BACKLOG_MAX / (rate * stall_s)).min(1.0);
        let all: u64 = sizing
            .backends
            .iter()
            .filter(|backend| backend.maxconn.is_some())
            .map(|backend| backend.servers)
            .sum();
        let wanted = (slots * scale).round().max(1.0) as u64;
        let servers = match scale < 1.0 || sizing.backends.len() > 1 {
            true => all.min(SERVERS_MAX).min(wanted),
            false => all,
        };
        let maxconn = (wanted as f64 / servers as f64).round().max(1.0) as u64;
        let rate_per_s = utilisation * (servers * maxconn) as f64 / service_s;
        let queue_s = sizing.value("queue-timeout").unwrap_or(0.1);
        let plan = Self {
            scale: rate_per_s / rate,
            rate_per_s,
            service_s,
            loaded_service_s: service_s,
            delay_s: service_s,
            service_cv: inputs.default_number("service-cv").min(SERVICE_CV_MAX),
            servers,
            maxconn,
            stall_s,
            overload: inputs.default_number("overload"),
            queue_s,
            queue_limit: (rate_per_s * queue_s).ceil().clamp(1.0, 1e6) as u64,
        };
        if all > 64 && scale >= 1.0 {
            return Err(invalid_value!("more than 64 servers: give the same slots with fewer"));
        }
        match plan.drain_s(plan.backlog()) {
            drain_s if drain_s > DRAIN_S_MAX => Err(invalid_value!(
                "it would drain for {drain_s:.0} s, {DRAIN_S_MAX:.0} s are allowed: shorten --stall, or add slots"
            )),
            _ => Ok(plan),
        }
    }

    pub fn pool(&self) -> SlotPool {
        SlotPool {
            slots: self.servers * self.maxconn,
            rate_per_s: self.rate_per_s,
            service_s: self.service_s,
            arrival_cv: 1.0,
            service_cv: self.service_cv,
        }
    }

    /// Returns the timeout of the queue in whole ms, at least 1.
    pub fn queue_ms(&self) -> u64 {
        (self.queue_s * 1e3).round().max(1.0) as u64
    }

    /// Returns the queue after the stall without a bound.
    pub fn backlog(&self) -> f64 {
        let pool = self.pool();
        (self.rate_per_s * self.stall_s - (pool.slots as f64 - pool.erlangs())).max(0.0)
    }

    /// Returns the pool with all slots busy: its capacity is that of a drain.
    pub fn loaded_pool(&self) -> SlotPool {
        SlotPool { service_s: self.loaded_service_s, ..self.pool() }
    }

    /// Returns the time to drain a queue, in s. It depends on the difference of two rates: at a utilisation of
    /// u, an error of the capacity is multiplied by 1 / (1 - u).
    pub fn drain_s(&self, queued: f64) -> f64 {
        let pool = self.loaded_pool();
        let spare_per_s = pool.capacity_per_s() - self.rate_per_s;
        if spare_per_s <= 0.0 { f64::INFINITY } else { (queued - pool.slots as f64).max(0.0) / spare_per_s }
    }

    /// Returns the requests that the subject passes on and those at its servers, for a rate. Without a queue
    /// some are rejected (Erlang B); in overload a queue passes on the capacity.
    fn carried(&self, queue: SubjectQueue, rate_per_s: f64) -> (f64, f64) {
        let pool = self.pool();
        let carried_per_s = match queue {
            SubjectQueue::None => {
                let offered = SlotPool { rate_per_s, ..pool };
                rate_per_s * (1.0 - offered.loss_probability())
            }
            SubjectQueue::Bounded | SubjectQueue::Unbounded => rate_per_s.min(pool.capacity_per_s()),
        };
        (carried_per_s, (carried_per_s * self.service_s).min(pool.slots as f64))
    }

    /// Compares the predictions for a subject with this queue with a measurement.
    pub fn compare(&self, queue: SubjectQueue, measured: &Measured) -> Vec<Comparison> {
        let backlog = self.backlog();
        let bounded = backlog.min(self.queue_limit as f64).min(self.rate_per_s * self.queue_s);
        let (_, busy) = self.carried(queue, self.rate_per_s);
        let (goodput, busy_in_overload) = self.carried(queue, self.rate_per_s * self.overload);
        // A subject without a queue has no backlog.
        let queued = |requests: f64| if queue == SubjectQueue::None { 0.0 } else { requests };
        vec![
            Comparison::new("connections in use", "requests", busy, measured.busy_connections),
            Comparison::new("queue after the stall", "requests", queued(backlog), measured.backlog),
            Comparison::new("drain time", "s", self.drain_s(queued(backlog)), measured.drain_s),
            Comparison::new("queue with shedding", "requests", queued(bounded), measured.bounded_backlog),
            Comparison::new("goodput in the overload", "1/s", goodput, measured.goodput_per_s),
            Comparison::new(
                "connections in the overload",
                "requests",
                busy_in_overload,
                measured.overload_connections,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_plan_is_scaled_with_its_utilisation() {
        let mut inputs = Inputs::default();
        for (name, text) in [("rate", "40k"), ("service", "20ms"), ("servers", "10"), ("maxconn", "100")] {
            inputs.give_texts(name, &[text.to_owned()], "test").unwrap();
        }
        let plan = VerifiedPlan::new(&Sizing::compute(&inputs), &inputs).unwrap();
        assert_eq!((plan.servers, plan.maxconn), (10, 3));
        assert!((plan.pool().utilisation() - 0.8).abs() < 1e-9 && plan.rate_per_s <= 1500.0, "{plan:?}");
        // A drain multiplies the error of the capacity by five at 80 %.
        let slower = VerifiedPlan { loaded_service_s: plan.service_s * 1.02, ..plan.clone() };
        let ratio = slower.drain_s(1000.0) / plan.drain_s(1000.0);
        assert!((1.08..1.12).contains(&ratio), "{ratio}");
        let full = VerifiedPlan { loaded_service_s: plan.service_s * 1.3, ..plan.clone() };
        assert!(full.drain_s(1000.0).is_infinite());
        let measured = Measured { busy_connections: Ok(24.0), drain_s: Ok(0.1), ..Measured::default() };
        let comparisons = plan.compare(SubjectQueue::Bounded, &measured);
        assert_eq!(
            comparisons[..3].iter().map(|comparison| comparison.holds).collect::<Vec<_>>(),
            [Some(true), None, Some(false)]
        );
        assert_eq!((comparisons[1].measured, comparisons[1].not_observable), (None, Some("not measured")));
    }

    #[test]
    fn backends_of_their_own_speed_are_not_verified_as_one_pool() {
        let mut inputs = Inputs::default();
        for (name, text) in [("rate", "100"), ("service", "10ms"), ("backend", "fast=2x4,service=5ms")] {
            inputs.give_texts(name, &[text.to_owned()], "test").unwrap();
        }
        let why = VerifiedPlan::new(&Sizing::compute(&inputs), &inputs).unwrap_err();
        assert!(why.to_string().contains("'fast'"), "{why}");
    }

    #[test]
    fn a_subject_without_a_queue_rejects_by_erlang_b() {
        let mut inputs = Inputs::default();
        for (name, text) in [("rate", "200"), ("service", "10ms"), ("servers", "2"), ("maxconn", "2")] {
            inputs.give_texts(name, &[text.to_owned()], "test").unwrap();
        }
        let plan = VerifiedPlan::new(&Sizing::compute(&inputs), &inputs).unwrap();
        let rows = plan.compare(SubjectQueue::None, &Measured::default());
        // B(4, 2) = 0.0952: tables of Erlang B.
        assert!((rows[0].predicted - 2.0 * (1.0 - 2.0 / 21.0)).abs() < 1e-9, "{rows:?}");
        assert_eq!((rows[1].predicted, rows[2].predicted, rows[3].predicted), (0.0, 0.0, 0.0));
        let with_queue = plan.compare(SubjectQueue::Bounded, &Measured::default());
        assert!(rows[4].predicted < with_queue[4].predicted, "{rows:?}");
    }
}

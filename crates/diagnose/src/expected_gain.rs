//! Expected gain of a change, from the record of the run at the limit: a closed network of the slots of the subject
//! and the CPUs (mean value analysis), Amdahl's split of CPU time, or the effect that a test measured. A gain that
//! the record cannot give is not predicted, with the reason.

use record::capacity_search::{Estimate, ExpectedGain, ProposedChange, TestedChange};
use record::units::{format_count, format_plural, format_rate};

use crate::facts::{Facts, Slots, format_ns, format_number};
use crate::figures as f;
use crate::resource_headroom::measure_headroom;
use crate::signals as s;
use crate::verdicts::{LimitClass, find_rule};
use crate::window::SUBJECT;

/// Largest number of requests in the network; more slots are as good as none.
const POPULATION_MAX: f64 = 4_096.0;
/// Least variation of a figure: rates of short loads differ by this much without a reason.
const VARIATION_MIN: f64 = 0.05;
/// Samples of functions per second of CPU time.
const SAMPLES_PER_CPU_S: f64 = 199.0;
/// Least fraction of CPU time of a part whose reduction is a change.
const PART_MIN: f64 = 0.1;
/// Fraction of waiting from which the slots of an unproven limit are a figure.
const QUEUES_FROM: f64 = 0.4;

/// Returns the change that a verdict calls for, with its expected gain. `ceiling` is the rate at full load without
/// the change; `tests` are the measured effects of changes of the load.
pub(crate) fn propose(
    facts: &Facts<'_>,
    verdict: &str,
    ceiling: Estimate,
    tests: &[TestedChange],
) -> ProposedChange {
    let before = Before { facts, ceiling };
    let measured = |change: &str| tests.iter().find(|test| test.change == change);
    match verdict {
        "subject_limited" => before.raise_limit(),
        "unknown" if facts.value(&s::QUEUEING) >= Some(QUEUES_FROM) => before.raise_limit(),
        "connection_limited" => before.raise_pool(),
        "origin_bound" => before.more_servers(),
        "single_thread_bound" => before.second_worker(),
        "cpu_throttled" => before.higher_quota(),
        "user_cpu_bound" => before.cheaper_function(),
        "handshake_bound" => before.smaller_part("avoid half of the handshakes", &s::HANDSHAKE),
        "bulk_crypto_bound" => before.smaller_part("halve the cost of encryption", &s::CRYPTO),
        "allocator_bound" => before.smaller_part("halve the cost of allocation", &s::ALLOCATION),
        "port_search_bound" => before.smaller_part("keep half of the connections open", &s::PORT_SEARCH),
        "link_bound" => before.smaller_responses(),
        "latency_bound" => before.more_at_a_time(measured("twice the connections")),
        "client_bound" => before.as_measured(
            "generate the load with twice the threads or machines",
            measured("a second load generator"),
        ),
        _ => without(remedy(verdict), reason_without(verdict)),
    }
}

fn remedy(verdict: &str) -> &'static str {
    match find_rule(verdict) {
        Some(_) => "make the change of the third sentence",
        None => "none: no limit is proven",
    }
}

/// Explains why no gain of a verdict can be predicted.
fn reason_without(verdict: &str) -> &'static str {
    match find_rule(verdict).map(|rule| rule.class) {
        Some(LimitClass::Failure) => {
            "the failures end, and the rate that it carries without them shows only then"
        }
        Some(LimitClass::Delay) => "the record does not have the part of the latency that this delay takes",
        Some(LimitClass::Cpu) => "the record does not have the part of the CPU time that the change saves",
        Some(_) => "the record does not have the next limit behind this one",
        None => "no limit is proven, so no change has a predictable effect",
    }
}

fn without(text: impl Into<String>, reason: impl Into<String>) -> ProposedChange {
    ProposedChange { text: text.into(), expected: None, without_prediction: Some(reason.into()) }
}

/// Subject before the change.
struct Before<'a> {
    facts: &'a Facts<'a>,
    ceiling: Estimate,
}

/// Reason if the CPU of the subject is not known.
const NO_CPU: &str =
    "the CPU of the server is not observable from here: run `weir watch --json FILE` there during the search";

impl Before<'_> {
    /// Returns the demands of a request on the CPUs of the machine, in s per request, and the CPUs.
    fn cpus(&self) -> Option<Cpus> {
        let rate = Some(self.facts.view.goodput()).filter(|rate| *rate > 0.0)?;
        let all = self.machine()?;
        let subject_s = self.facts.value(&s::SUBJECT_CPUS)? / rate;
        let all_s = (all.load / rate).max(subject_s);
        // The generator on the same machine takes its part of the CPUs with each request.
        let mut servers = all.available * subject_s / all_s.max(1e-12);
        let role = self.facts.view.machine(SUBJECT)?;
        let role = role.observed.roles.iter().find(|role| role.name == SUBJECT)?;
        if let Some(quota) = self.facts.quota_cpus() {
            servers = servers.min(quota);
        }
        servers = servers.min(f64::from(role.cpus_allowed.max(1)));
        if has_interpreter_lock(&role.command) {
            servers = servers.min(role.pids.len().max(1) as f64);
        } else if s::is_single_threaded(self.facts.view) {
            servers = servers.min(1.0);
        }
        Some(Cpus { subject_s, servers: servers.max(1e-3) })
    }

    /// Returns the load of the subject's machine and its CPUs. Other programs do not count: they are no part of the
    /// service, and make a run suspect.
    fn machine(&self) -> Option<s::MachineCpus> {
        let load = s::machine_cpus(self.facts.view)?.load;
        let available = self.facts.read_machine_median(f::AVAILABLE_CPUS.read)?;
        Some(s::MachineCpus { load, available: available.max(1e-9) })
    }

    /// Raises the number of requests that the subject works on at a time.
    fn raise_limit(&self) -> ProposedChange {
        match self.facts.slots() {
            Some(Slots::Number { count, is_about, each_ns }) => {
                let about = if is_about { "about " } else { "" };
                let text = format!(
                    "raise that limit from {about}{} to {about}{} requests at a time",
                    format_number(count),
                    format_number(2.0 * count)
                );
                self.more_slots(text, count, each_ns / 1e9)
            }
            Some(Slots::ByTime { .. }) => {
                let text = "double the rate limit, or halve the pause that paces its requests";
                self.scaled(
                    text.to_owned(),
                    self.room(2.0, &[]),
                    "the limit is a rate, so twice of it passes",
                )
            }
            None => without(
                "raise its number of workers, its pool or its semaphore",
                "the number of requests that it works on at a time is not known: without a baseline, or beside stalls of 40 ms",
            ),
        }
    }

    /// Raises the number of connections to the servers behind the subject.
    fn raise_pool(&self) -> ProposedChange {
        let Some(pool) = self.facts.pool().filter(|pool| *pool >= 1.0) else {
            return without("raise the limit of connections", reason_without("connection_limited"));
        };
        let text = format!(
            "raise the limit of connections from {} to {}",
            format_number(pool),
            format_number(2.0 * pool)
        );
        self.more_slots(text, pool, pool / self.facts.view.goodput().max(1e-9))
    }

    /// Doubles the servers behind the subject.
    fn more_servers(&self) -> ProposedChange {
        let text = match self.facts.origin_slots() {
            Some((count, _)) => format!(
                "double the servers behind your service, or the {} that they work on at a time",
                format_plural(count as u64, "request")
            ),
            None => "double the servers behind your service, or make them twice as fast".to_owned(),
        };
        match self.facts.slots() {
            Some(Slots::Number { count, each_ns, .. }) => self.more_slots(text, count, each_ns / 1e9),
            _ => without(&text, "the number of requests that they work on at a time is not known"),
        }
    }

    /// Computes the effect of twice the slots, of `each_s` each.
    fn more_slots(&self, text: String, slots: f64, each_s: f64) -> ProposedChange {
        let Some(cpus) = self.cpus() else { return without(text, NO_CPU) };
        let in_flight_max = self.facts.view.run.request_slots().max(1.0);
        let after = (2.0 * slots).min(in_flight_max).min(POPULATION_MAX);
        let network = Network { delay_s: (each_s - cpus.subject_s).max(0.0), cpus };
        let scale = self.ceiling.value / network.rate(slots.min(POPULATION_MAX)).max(1e-9);
        // No change makes a request faster: twice the slots carry at most twice as much.
        let high = (scale * network.rate_max(after)).min(self.ceiling.value * after / slots);
        let estimate = Estimate {
            value: (scale * network.rate(after)).min(high),
            low: (scale * network.rate_min(after)).min(high),
            high,
        };
        let basis = format!(
            "each of {} slots takes {}, {} of that CPU time",
            format_number(after),
            format_ns(each_s * 1e9),
            format_ns(cpus.subject_s * 1e9)
        );
        self.gain(text, estimate, basis)
    }

    /// Runs a second worker beside the one that is full.
    fn second_worker(&self) -> ProposedChange {
        let facts = self.facts;
        let text = "run two workers that share the port, instead of one thread".to_owned();
        let factor = self.room(2.0, &["subject's busiest thread"]);
        let busy = facts.value(&s::SUBJECT_THREAD).unwrap_or(1.0);
        self.scaled(text, factor, &format!("one thread is {:.0} % busy, and others are idle", busy * 100.0))
    }

    /// Raises the quota of CPU time by what it withholds.
    fn higher_quota(&self) -> ProposedChange {
        let quota = self.facts.quota_cpus();
        let Some((quota, withheld)) = quota.zip(self.facts.value(&s::SUBJECT_THROTTLED)) else {
            return without("raise the quota of CPU time", reason_without("cpu_throttled"));
        };
        let text = format!("raise the quota from {quota:.2} to {:.2} CPUs", quota + withheld);
        let factor = self.room(1.0 + withheld / quota.max(1e-3), &["subject's CPU quota"]);
        self.scaled(text, factor, &format!("a CPU is worth {}", format_rate(self.ceiling.value / quota)))
    }

    /// Halves the cost of the busiest function.
    fn cheaper_function(&self) -> ProposedChange {
        let functions = self.facts.view.run.observed.iter().flat_map(|machine| &machine.functions);
        let own =
            functions.filter(|function| function.role == SUBJECT && !function.function.starts_with('['));
        let busiest = own.max_by(|left, right| left.self_fraction.total_cmp(&right.self_fraction));
        match busiest.filter(|function| function.self_fraction >= PART_MIN) {
            Some(function) => {
                self.halved(format!("halve the cost of `{}`", function.function), function.self_fraction)
            }
            None => without(
                "make a response cheaper, or add CPUs",
                "no function takes a tenth of the CPU time, and the part of the work that more CPUs cannot share is \
                 not in the record",
            ),
        }
    }

    fn smaller_part(&self, text: &str, part: &crate::signals::Signal) -> ProposedChange {
        match self.facts.value(part).filter(|fraction| *fraction >= PART_MIN) {
            Some(fraction) => self.halved(text.to_owned(), fraction),
            None => without(text, "its part of the CPU time is too small to be measured"),
        }
    }

    /// Computes the effect of half the cost of a part of the subject's CPU time (Amdahl).
    fn halved(&self, text: String, fraction: f64) -> ProposedChange {
        let (Some(cpus), Some(all)) = (self.cpus(), self.machine()) else {
            return without(text, NO_CPU);
        };
        let cpu_s = cpus.subject_s * self.facts.view.goodput();
        // If all CPUs are full, the part of the generator stays.
        let is_shared = all.load / all.available >= 0.9;
        let share = if is_shared { (cpu_s / all.load.max(1e-9)).min(1.0) } else { 1.0 };
        let samples = SAMPLES_PER_CPU_S * cpu_s * self.facts.view.run.window.length_s();
        let error = 2.0 * (fraction * (1.0 - fraction) / samples.max(1.0)).sqrt();
        let rate = |fraction: f64| self.ceiling.value / (1.0 - share * fraction.clamp(0.0, 0.99) / 2.0);
        let estimate =
            Estimate { value: rate(fraction), low: rate(fraction - error), high: rate(fraction + error) };
        let basis = format!("it takes {:.0} % of the CPU time of your service", fraction * 100.0);
        self.gain(text, estimate, basis)
    }

    fn smaller_responses(&self) -> ProposedChange {
        let factor = self.room(2.0, &["busiest link"]);
        let text = "halve the bytes of a response (compression), or double the link".to_owned();
        self.scaled(text, factor, &format!("a response has {}", self.facts.response_size()))
    }

    fn more_at_a_time(&self, tested: Option<&TestedChange>) -> ProposedChange {
        let text = "halve what a request waits for, or let clients send twice as many at a time";
        match tested {
            Some(_) => self.as_measured(text, tested),
            None => {
                let factor = self.room(2.0, &["generator's connections"]);
                self.scaled(text.to_owned(), factor, "no resource is full")
            }
        }
    }

    fn as_measured(&self, text: &str, tested: Option<&TestedChange>) -> ProposedChange {
        let Some(test) = tested else {
            return without(text, "no test measured its effect");
        };
        let times = |factor: f64| factor * self.ceiling.value;
        let Estimate { value, low, high } = test.factor;
        let estimate = Estimate { value: times(value), low: times(low), high: times(high) };
        self.gain(text.to_owned(), estimate, format!("measured with {}", test.change))
    }

    /// Limits a factor by the next resource that is full. `without` are the resources that the change gives.
    fn room(&self, factor: f64, without: &[&str]) -> f64 {
        let rate = self.facts.view.goodput().max(1e-9);
        let next = measure_headroom(self.facts.view).into_iter();
        let next =
            next.filter(|headroom| !without.contains(&headroom.resource) && headroom.resource != "all CPUs");
        let full = next.filter_map(|headroom| Some(headroom.full_at?.rate_per_s / rate));
        let machine = self.machine().map(|machine| machine.available / machine.load.max(1e-9));
        full.chain(machine).fold(factor, f64::min).max(1.0)
    }

    fn scaled(&self, text: String, factor: f64, basis: &str) -> ProposedChange {
        if self.facts.value(&s::SUBJECT_CPUS).is_none() {
            return without(text, NO_CPU);
        }
        let value = self.ceiling.value * factor;
        self.gain(text, Estimate { value, low: value, high: value }, basis.to_owned())
    }

    /// Returns a change with its gain; the range gets the variation of the rate before it.
    fn gain(&self, text: String, after: Estimate, basis: String) -> ProposedChange {
        let ceiling = self.ceiling;
        let spread = |end: f64| ((end / ceiling.value.max(1e-9)) - 1.0).abs().max(VARIATION_MIN);
        let after_per_s = Estimate {
            value: after.value,
            low: after.low * (1.0 - spread(ceiling.low)).max(0.0),
            high: after.high * (1.0 + spread(ceiling.high)),
        };
        if !after_per_s.is_narrow() {
            let reason = format!(
                "the record leaves a range from {} to {}",
                format_count(after_per_s.low),
                format_rate(after_per_s.high)
            );
            return without(text, reason);
        }
        if after_per_s.value < ceiling.value * (1.0 + VARIATION_MIN) {
            let reason = match next_full(self.facts) {
                Some(resource) => {
                    format!("it gains nothing before the next limit is raised as well: {resource}")
                }
                None => "the next limit is as low as this one".to_owned(),
            };
            return without(text, reason);
        }
        let expected = ExpectedGain { before_per_s: ceiling.value, after_per_s, basis };
        ProposedChange { text, expected: Some(expected), without_prediction: None }
    }
}

/// Returns the resource of the subject or its machine that is full first.
fn next_full(facts: &Facts<'_>) -> Option<String> {
    let first = measure_headroom(facts.view).into_iter().find(|headroom| headroom.full_at.is_some())?;
    Some(first.resource.replace("subject's", "your service's"))
}

/// Returns true for programs of which one thread at a time runs the code of a process.
fn has_interpreter_lock(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    ["python", "node", "ruby", "gunicorn", "uvicorn", "puma"]
        .iter()
        .any(|interpreter| name.starts_with(interpreter))
}

/// CPUs of the subject.
#[derive(Clone, Copy, Debug)]
struct Cpus {
    subject_s: f64,
    /// CPUs that it may use, without those that the generator takes at the same rate.
    servers: f64,
}

/// Closed network: requests wait for time to pass, and for CPUs.
#[derive(Clone, Copy, Debug)]
struct Network {
    delay_s: f64,
    cpus: Cpus,
}

impl Network {
    /// Returns the demand on one queue that stands for all CPUs, and the rest as a delay (Seidmann's approximation).
    fn demands(&self) -> (f64, f64) {
        let queue_s = self.cpus.subject_s / self.cpus.servers.max(1.0);
        // Less than one CPU makes each request longer.
        let queue_s = if self.cpus.servers < 1.0 { self.cpus.subject_s / self.cpus.servers } else { queue_s };
        (queue_s, self.delay_s + (self.cpus.subject_s - queue_s).max(0.0))
    }

    /// Returns the rate of so many requests at a time, by mean value analysis.
    fn rate(&self, population: f64) -> f64 {
        let (queue_s, delay_s) = self.demands();
        let (mut queued, mut rate) = (0.0, 0.0);
        for requests in 1..=population.round().max(1.0) as u64 {
            let response_s = queue_s * (1.0 + queued);
            rate = requests as f64 / (response_s + delay_s).max(1e-12);
            queued = rate * response_s;
        }
        rate
    }

    /// Returns the upper bound: no request waits for another, or all CPUs are full.
    fn rate_max(&self, population: f64) -> f64 {
        let (queue_s, delay_s) = self.demands();
        (population / (queue_s + delay_s).max(1e-12)).min(1.0 / queue_s.max(1e-12))
    }

    /// Returns the lower bound: each request waits for all others on the CPU.
    fn rate_min(&self, population: f64) -> f64 {
        let (queue_s, delay_s) = self.demands();
        population / (delay_s + population * queue_s).max(1e-12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(delay_ms: f64, cpu_ms: f64, servers: f64) -> Network {
        Network { delay_s: delay_ms / 1e3, cpus: Cpus { subject_s: cpu_ms / 1e3, servers } }
    }

    #[test]
    fn slots_that_only_wait_carry_twice_as_much_when_doubled() {
        let waits = network(5.0, 0.01, 2.0);
        let factor = waits.rate(16.0) / waits.rate(8.0);
        assert!((factor - 2.0).abs() < 0.02, "{factor}");
        assert!(waits.rate_min(16.0) > 1.8 * waits.rate(8.0));
    }

    #[test]
    fn slots_that_compute_carry_no_more_than_the_cpus() {
        // Four slots, half of whose time is CPU time, on one CPU: it is full already.
        let computes = network(1.0, 1.0, 1.0);
        let (before, after) = (computes.rate(4.0), computes.rate(8.0));
        assert!(after <= 1_000.0 && after / before < 1.1, "{before} {after}");
        for population in [1.0, 2.0, 7.0, 64.0] {
            let (low, rate, high) =
                (computes.rate_min(population), computes.rate(population), computes.rate_max(population));
            assert!(low <= rate * 1.000_001 && rate <= high * 1.000_001, "{population}: {low} {rate} {high}");
        }
    }

    #[test]
    fn interpreters_with_a_lock_use_one_cpu_a_process() {
        assert!(has_interpreter_lock("/usr/bin/python3 app.py") && has_interpreter_lock("node server.js"));
        assert!(!has_interpreter_lock("/srv/app --python") && !has_interpreter_lock(""));
    }
}

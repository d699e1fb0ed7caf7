//! Whether a load's result may be believed, as a table of rules: each looks at the evidence and
//! says what speaks against it, with its figures. Pure; the sources of the bounds stand beside them.

mod stalls;

use record::units::{count_of, format_count, format_duration_ns};
use record::validity::{Reason, Validity, Verdict};

use crate::quantiles::median;
use crate::run::Measured;

/// Everything that a verdict is made of.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// What the run saw.
    pub measured: &'a Measured,
    /// What the host said of it.
    pub host: HostEvidence,
}

/// What the host said of the run, in the window; `None` where it does not tell.
#[derive(Clone, Debug, Default)]
pub struct HostEvidence {
    /// Share of a core that the busiest generator thread used.
    pub busiest_thread_share: Option<f64>,
    /// Share of the window that generator threads waited for a processor, of the worst.
    pub run_queue_wait_share: Option<f64>,
    /// Processors of the machine.
    pub cpus: Option<u32>,
    /// Processors used by neither the generator nor the subject.
    pub foreign_cpus: Option<f64>,
    /// Share of time that the hypervisor gave to others.
    pub steal_share: Option<f64>,
    /// Why source ports are tight, if they are.
    pub ports_tight: Option<String>,
    /// Share used of what a stored calibration says this client can do.
    pub calibrated_share: Option<f64>,
}

/// One rule.
pub struct Rule {
    /// The code in records.
    pub code: &'static str,
    /// What it looks at, and where its bound comes from.
    pub doc: &'static str,
    /// Whether the subject and not the measurement is to blame.
    pub of_subject: bool,
    /// Whether it needs statistics, so that it says nothing of a run that is [`TOO_SHORT`].
    pub statistical: bool,
    check: fn(&Evidence<'_>) -> Option<(Verdict, String)>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("code", &self.code).finish_non_exhaustive()
    }
}

/// The code of the rule that finds too little to judge by.
pub const TOO_SHORT: &str = "too_short";

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        code: "client_bound",
        doc: "A generator thread used 95 % of a core or more (invalid), or 80 % (suspect): its \
              rate is then a lower bound and its latencies include its own queue.",
        of_subject: false,
        statistical: true,
        check: client_bound,
    },
    Rule {
        code: "run_queue_wait",
        doc: "A generator thread waited for a processor for over 10 % of the time (30 %: invalid).",
        of_subject: false,
        statistical: true,
        check: run_queue_wait,
    },
    Rule {
        code: "send_lag",
        doc: "99 % of the sends (or wake-ups, in a closed loop) were within more than 1 ms and 10 % \
              of the median latency (suspect), or more than 10 ms and the whole median (invalid). Every \
              due request counts; waiting for a free connection is not the generator's lag.",
        of_subject: false,
        statistical: true,
        check: send_lag,
    },
    Rule {
        code: "generator_stalled",
        doc: "The generator did not run for over 5 % of its time, or over 1 % of the requests were due \
              or answered in stalls longer than the median latency (invalid); over 1 % of its time, \
              over 1 % of the requests in stalls longer than a tenth of it, or over 0.1 % in stalls of \
              which one took 100 ms (suspect). A stall is a time of at least 10 ms in which an event \
              loop had to run and did not: the process was stopped, or had no CPU.",
        of_subject: false,
        statistical: true,
        check: stalls::generator_stalled,
    },
    Rule {
        code: "connections_missing",
        doc: "Fewer connections were obtained than asked for.",
        of_subject: false,
        statistical: false,
        check: connections_missing,
    },
    Rule {
        code: "ports_tight",
        doc: "The source ports hardly suffice for the connections of the run.",
        of_subject: false,
        statistical: false,
        check: ports_tight,
    },
    Rule {
        code: "littles_law",
        doc: "Requests in flight as counted, and rate times mean latency, differ by over 5 %: then \
              latencies are missing or wrong. Not judged where fewer than 40 mean times in flight fit \
              into the window, because the requests cut at its edges weigh too much.",
        of_subject: false,
        statistical: true,
        check: littles_law,
    },
    Rule {
        code: "errors",
        doc: "More requests failed or had a bad response (400 and above, or not as expected) than \
              --error-share-max, or than an objective of errors (--slo errors<1%), allows.",
        of_subject: true,
        statistical: false,
        check: errors,
    },
    Rule {
        code: "no_response",
        doc: "There was no response at all.",
        of_subject: true,
        statistical: false,
        check: no_response,
    },
    Rule {
        code: "dropped",
        doc: "Requests were due but never sent, because the line was full: no percentile has them.",
        of_subject: true,
        statistical: false,
        check: dropped,
    },
    Rule {
        code: "overloaded",
        doc: "Open loop: under 98 % of the requests due in the window were answered \
              (rates.answered_share): the others failed, were dropped, or are of a backlog that grew \
              with the length of the run. What is in flight all the time is not missing.",
        of_subject: true,
        statistical: true,
        check: overloaded,
    },
    Rule {
        code: "not_steady",
        doc: "The median rate of the first and of the last third of the window differ by over \
              10 %, or a second had no response at all.",
        of_subject: true,
        statistical: true,
        check: not_steady,
    },
    Rule {
        code: "foreign_cpu",
        doc: "Others used over 5 % of the machine's processors.",
        of_subject: false,
        statistical: true,
        check: foreign_cpu,
    },
    Rule {
        code: "cpu_steal",
        doc: "The hypervisor gave over 2 % of the time to others (10 %: invalid).",
        of_subject: false,
        statistical: true,
        check: cpu_steal,
    },
    Rule {
        code: "near_calibrated_limit",
        doc: "The run used over 80 % of what the stored calibration says this client can do.",
        of_subject: false,
        statistical: true,
        check: near_calibrated_limit,
    },
    Rule {
        code: TOO_SHORT,
        doc: "The window has no whole second, or fewer than 100 responses. Rules that need statistics \
              say nothing of such a run; counts (errors, connections, dropped) still do.",
        of_subject: false,
        statistical: false,
        check: too_short,
    },
    Rule {
        code: "partial",
        doc: "The run was ended by hand.",
        of_subject: false,
        statistical: false,
        check: partial,
    },
    Rule {
        code: "excess_bytes",
        doc: "The server sent bytes behind responses that nobody had asked for.",
        of_subject: true,
        statistical: false,
        check: excess_bytes,
    },
];

/// The verdict on a run.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Validity {
    let short = !evidence.measured.whole_seconds || too_short(evidence).is_some();
    let rules = RULES.iter().filter(|rule| !(short && rule.statistical));
    let reasons = rules.filter_map(|rule| {
        (rule.check)(evidence).map(|(verdict, text)| Reason {
            code: rule.code.to_owned(),
            verdict,
            text,
        })
    });
    Validity::from_reasons(reasons.collect())
}

/// Suspect beyond one bound, invalid beyond the other.
fn graded(value: f64, suspect: f64, invalid: f64) -> Option<Verdict> {
    if value >= invalid {
        Some(Verdict::Invalid)
    } else if value >= suspect {
        Some(Verdict::Suspect)
    } else {
        None
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 10.0 || percent == 0.0 => format!("{percent:.0} %"),
        percent if percent >= 0.1 => format!("{percent:.1} %"),
        percent => format!("{percent:.2} %"),
    }
}

type Finding = Option<(Verdict, String)>;

fn client_bound(evidence: &Evidence<'_>) -> Finding {
    let share = evidence.host.busiest_thread_share?;
    let verdict = graded(share, 0.80, 0.95)?;
    let text = format!(
        "the generator was {} the limit: its busiest thread used {} of a core; use more threads \
         (-t), more machines, or a --rate below its capacity",
        if verdict == Verdict::Invalid { "itself" } else { "close to being" },
        percent(share)
    );
    Some((verdict, text))
}

fn run_queue_wait(evidence: &Evidence<'_>) -> Finding {
    let share = evidence.host.run_queue_wait_share?;
    let verdict = graded(share, 0.10, 0.30)?;
    let text = format!(
        "a generator thread waited for a processor for {} of the time; give it processors of its \
         own",
        percent(share)
    );
    Some((verdict, text))
}

fn send_lag(evidence: &Evidence<'_>) -> Finding {
    let measured = evidence.measured;
    if measured.latencies.last_byte.response.is_empty() {
        return None;
    }
    let lag_ns = measured.lag.at(0.99);
    let median_ns = measured.latencies.last_byte.response.at(0.5);
    let what = if measured.plan.is_open_loop() { "sends" } else { "wake-ups" };
    let verdict = if lag_ns > 10_000_000 && lag_ns > median_ns {
        Verdict::Invalid
    } else if lag_ns > 1_000_000 && lag_ns > median_ns / 10 {
        Verdict::Suspect
    } else {
        return None;
    };
    let text = format!(
        "1 % of the generator's {what} were later than {}, against a median latency of {}",
        format_duration_ns(lag_ns),
        format_duration_ns(median_ns)
    );
    Some((verdict, text))
}

fn connections_missing(evidence: &Evidence<'_>) -> Finding {
    let (wanted, obtained) =
        (evidence.measured.plan.connections, evidence.measured.counters.obtained);
    (obtained < wanted).then(|| {
        let text = format!("of {wanted} connections only {obtained} were obtained");
        (Verdict::Invalid, text)
    })
}

fn ports_tight(evidence: &Evidence<'_>) -> Finding {
    evidence.host.ports_tight.clone().map(|why| (Verdict::Suspect, why))
}

fn littles_law(evidence: &Evidence<'_>) -> Finding {
    let measured = evidence.measured;
    let (counted, by_law) = measured.in_flight();
    let length_s = measured.load_s - measured.window_s.0;
    let mean_s = by_law * length_s / measured.counters.sent.max(1) as f64;
    if mean_s * 40.0 > length_s {
        return None;
    }
    // Below a hundredth of a request in flight the stamps' own cost shows.
    let differs = (counted - by_law).abs() > 0.05 * counted.max(by_law) + 0.01;
    differs.then(|| {
        let text = format!(
            "{counted:.2} requests were in flight, but rate times mean latency is {by_law:.2}: \
             latencies are missing or wrong"
        );
        (Verdict::Invalid, text)
    })
}

fn errors(evidence: &Evidence<'_>) -> Finding {
    let measured = evidence.measured;
    let share = measured.error_share();
    (share > measured.plan.error_share_max).then(|| {
        let counters = &measured.counters;
        let bad = counters.bad();
        let failed = counters.requests.saturating_sub(counters.good() + bad);
        let text = format!(
            "{} of the requests had no good response ({failed} failed, {}); the bound is {}",
            percent(share),
            count_of(bad, "bad response"),
            percent(measured.plan.error_share_max)
        );
        (Verdict::Invalid, text)
    })
}

fn no_response(evidence: &Evidence<'_>) -> Finding {
    let none = evidence.measured.counters.responses == 0;
    none.then(|| (Verdict::Invalid, "there was no response".to_owned()))
}

fn dropped(evidence: &Evidence<'_>) -> Finding {
    let counters = &evidence.measured.counters;
    let share = counters.dropped as f64 / counters.due.max(1) as f64;
    let text = format!(
        "{} requests ({}) were due but never sent, because the line of {} was full",
        counters.dropped,
        percent(share),
        evidence.measured.plan.line_max
    );
    (counters.dropped > 0).then_some((graded(share, 0.0, 0.001)?, text))
}

fn overloaded(evidence: &Evidence<'_>) -> Finding {
    let measured = evidence.measured;
    let share = measured.answered_share()?;
    let text = format!(
        "of {}/s offered {} were answered: the others failed, were dropped, or are of a backlog that \
         grew with the length of the run",
        format_count(measured.window_due as f64 / measured.window_length_s()),
        percent(share)
    );
    (share < 0.98).then_some((Verdict::Suspect, text))
}

fn not_steady(evidence: &Evidence<'_>) -> Finding {
    let intervals = evidence.measured.intervals.iter();
    let rates: Vec<u64> = intervals.filter(|i| i.measured).map(|i| i.responses).collect();
    if rates.len() < 3 || evidence.measured.counters.responses == 0 {
        return None;
    }
    let silent = rates.iter().filter(|rate| **rate == 0).count();
    if silent > 0 {
        let text = format!("{silent} of {} seconds had no response at all", rates.len());
        return Some((Verdict::Suspect, text));
    }
    let third = rates.len() / 3;
    if third < 2 {
        return None;
    }
    let typical = |part: &[u64]| median(part.iter().map(|rate| *rate as f64));
    let (first, last) = (typical(&rates[..third]), typical(&rates[rates.len() - third..]));
    let drift = (last - first) / first;
    // A rate that is too low to be even from second to second proves nothing.
    let noise = 3.0 / first.sqrt();
    (drift.abs() > 0.10_f64.max(noise)).then(|| {
        let text = format!(
            "the rate went from {}/s in the first third to {}/s in the last",
            format_count(first),
            format_count(last)
        );
        (Verdict::Suspect, text)
    })
}

fn foreign_cpu(evidence: &Evidence<'_>) -> Finding {
    let (foreign, cpus) = (evidence.host.foreign_cpus?, evidence.host.cpus?);
    let share = foreign / f64::from(cpus.max(1));
    (share > 0.05).then(|| {
        let text = format!(
            "other programs used {foreign:.2} of this machine's {cpus} processors during the run"
        );
        (Verdict::Suspect, text)
    })
}

fn cpu_steal(evidence: &Evidence<'_>) -> Finding {
    let share = evidence.host.steal_share?;
    let verdict = graded(share, 0.02, 0.10)?;
    Some((verdict, format!("the hypervisor gave {} of the time to others", percent(share))))
}

fn near_calibrated_limit(evidence: &Evidence<'_>) -> Finding {
    let share = evidence.host.calibrated_share?;
    let verdict = graded(share, 0.80, f64::INFINITY)?;
    Some((verdict, format!("this run used {} of what this client can do", percent(share))))
}

fn too_short(evidence: &Evidence<'_>) -> Finding {
    let measured = evidence.measured;
    let responses = measured.latencies.last_byte.response.count();
    if measured.counters.responses == 0 || (measured.whole_seconds && responses >= 100) {
        return None;
    }
    let length_s = measured.window_length_s();
    let text = match responses >= 100 {
        true => format!(
            "no whole second was measured, only {length_s:.2} s: nothing shows whether it was steady"
        ),
        false => {
            format!(
                "too few to judge by: {} in {length_s:.2} s",
                count_of(responses, "good response")
            )
        }
    };
    Some((Verdict::Suspect, text))
}

fn partial(evidence: &Evidence<'_>) -> Finding {
    let measured = evidence.measured;
    let text = format!("ended by hand after {:.1} s", measured.load_s);
    measured.partial.then_some((Verdict::Suspect, text))
}

fn excess_bytes(evidence: &Evidence<'_>) -> Finding {
    let bytes = evidence.measured.counters.excess_bytes;
    let text = format!("the server sent {} outside of any response", count_of(bytes, "byte"));
    (bytes > 0).then_some((Verdict::Suspect, text))
}

#[cfg(test)]
mod tests;

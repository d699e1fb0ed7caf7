//! From a record to its verdict: what limited the run, the evidence, what was ruled out and by what,
//! what would limit it next. Pure: the same record always gives the same verdict.
//!
//! Not for whether the figures may be believed (that is the generator's verdict on itself), and not
//! for measuring: what is not in the record is not known.

mod fingerprints;
mod headroom;
pub mod signals;
mod split;
mod traffic;
pub mod verdicts;
mod view;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use record::observed::Ended;
use record::run::{Candidate, Confidence, Diagnosis, Run};

pub use fingerprints::{FINGERPRINTS, Fingerprint, Phase};
pub use headroom::Used;
use signals::{Family, written};
use verdicts::{Bound, Class, NONE, Perturbation, Sign, UNKNOWN, VERDICTS, Verdict};
use view::{ORIGIN, SUBJECT, View};

/// The verdict on a run, from its record alone.
#[must_use]
pub fn diagnose(run: &Run) -> Diagnosis {
    let view = View::new(run);
    let mut found = judged(&view);
    // Whatever is said of the rest: this is what one has to know first.
    found.evidence.splice(0..0, ended(&view));
    if found.verdict == NONE
        && let Some(reason) = stalled_generator(run)
    {
        found.verdict = UNKNOWN.to_owned();
        found.claim = "the generator stalled: this run says nothing of the subject".to_owned();
        found.confidence = Confidence::None;
        found.evidence.push(reason.to_owned());
    }
    found
}

/// The reason why the generator's own stalls void a run.
fn stalled_generator(run: &Run) -> Option<&str> {
    let mut reasons = run.validity.reasons.iter();
    let stalled = reasons.find(|reason| {
        reason.code == "generator_stalled" && reason.verdict == record::validity::Verdict::Invalid
    });
    stalled.map(|reason| reason.text.as_str())
}

/// Whose end under load is evidence: "process 12 (nginx) ended at 1.5 s".
fn ended(view: &View<'_>) -> Vec<String> {
    let of_the_load = |ended: &&Ended| {
        let served = [SUBJECT, ORIGIN].contains(&ended.role.as_str());
        served && (0.0..=view.run.duration_s).contains(&ended.time_s)
    };
    let all = view.run.observed.iter().flat_map(|seen| &seen.ended);
    all.filter(of_the_load).map(ToString::to_string).collect()
}

fn judged(view: &View<'_>) -> Diagnosis {
    let mut held: Vec<(&Verdict, Held)> = Vec::new();
    let (mut ruled_out, mut not_observable) = (Vec::new(), Vec::new());
    for row in VERDICTS {
        match judge(row, view) {
            Judged::Holds(one) => held.push((row, one)),
            Judged::RuledOut { near, why } => {
                ruled_out.push((near, format!("{}: {why}", row.code)));
            }
            Judged::NotObservable(why) => not_observable.push(format!("{}: {why}", row.code)),
        }
    }
    // What came nearest to holding is what somebody would ask about.
    ruled_out.sort_by_key(|(near, _)| Reverse(*near));
    let common = Diagnosis {
        ruled_out: ruled_out.into_iter().map(|(_, why)| why).collect(),
        not_observable,
        queueing_share: (signals::QUEUEING.read)(view),
        time_split: split::time_split(view),
        resources: headroom::resources(view),
        next_limits: headroom::next_limits(view),
        fingerprints: fingerprints::found(view),
        ..Diagnosis::default()
    };
    let Some(((row, first), rest)) = held.split_first() else {
        return without_bottleneck(view, common);
    };
    let also = rest.iter().map(|(row, one)| candidate(row, one)).collect();
    let rival = rest.iter().find(|(other, one)| other.class != row.class && one.clear);
    Diagnosis {
        verdict: row.code.to_owned(),
        claim: row.claim.to_owned(),
        confidence: confidence(row, first, rival.is_some(), view),
        evidence: first.evidence.clone(),
        also,
        told_apart_by: rest.first().map(|(other, _)| told_apart_by(row, other)).unwrap_or_default(),
        remedy: row.remedy.to_owned(),
        counter_test: row.counter_tests().map(|test| test.2).collect::<Vec<_>>().join("; "),
        ..common
    }
}

/// The level of a verdict, from how clearly its conditions hold and what else could be true.
fn confidence(row: &Verdict, held: &Held, has_rival: bool, view: &View<'_>) -> Confidence {
    // How a full resource answers is known; a delay and a limit differ by the baseline alone.
    let needs_baseline = matches!(row.class, Class::Delay | Class::Limit | Class::Cpu);
    let baseline_fits = !needs_baseline || (signals::QUEUEING.read)(view).is_some();
    // Runtimes park idle threads on futexes as well: counts of calls do not prove a lock.
    let most = if row.circumstantial { Confidence::Likely } else { Confidence::Sure };
    let level = match (held.clear, held.families, has_rival) {
        (true, 3.., false) if baseline_fits => Confidence::Sure,
        (true, 2.., false) | (_, 3.., false) => Confidence::Likely,
        (true, 3.., true) => Confidence::Likely,
        _ if row.counted => Confidence::Likely,
        _ => Confidence::Possible,
    };
    level.min(most)
}

/// The change that a verdict and its rival answer differently, in a sentence.
fn told_apart_by(row: &Verdict, rival: &Verdict) -> String {
    let change = Perturbation::ALL.iter().find_map(|&change| {
        let (one, other) = (row.class.predicts(change)?, rival.class.predicts(change)?);
        (one != other).then_some((change, one, other))
    });
    match change {
        Some((change, one, other)) => format!(
            "{}: the throughput {} if it is {}, and {} if it is {}",
            change.words(),
            one.words(),
            row.code,
            other.words(),
            rival.code
        ),
        None => format!(
            "no change from outside tells {} from {}: look at the subject's own counters",
            row.code, rival.code
        ),
    }
}

/// How much of each resource with a bound was used, the fullest first: the next limits. A resource of
/// which the record does not tell is absent.
#[must_use]
pub fn headroom(run: &Run) -> Vec<Used> {
    headroom::used(&View::new(run))
}

fn candidate(row: &Verdict, held: &Held) -> Candidate {
    Candidate {
        verdict: row.code.to_owned(),
        confidence: if held.clear { Confidence::Likely } else { Confidence::Possible },
        evidence: held.evidence.clone(),
    }
}

/// A verdict that holds.
struct Held {
    /// Its necessary conditions hold with a margin.
    clear: bool,
    /// Families of signals that speak for it.
    families: usize,
    evidence: Vec<String>,
}

enum Judged {
    Holds(Held),
    /// By which sign, after so many that were there.
    RuledOut {
        near: usize,
        why: String,
    },
    NotObservable(String),
}

fn judge(row: &Verdict, view: &View<'_>) -> Judged {
    if !row.not_observable.is_empty() {
        return Judged::NotObservable(row.not_observable.to_owned());
    }
    let (mut evidence, mut families, mut clear) = (Vec::new(), BTreeSet::new(), true);
    for sign in row.proofs {
        match look(sign, view) {
            None => {
                return Judged::NotObservable(format!("{} is not observable", sign.signal.name));
            }
            Some((false, value)) => {
                return Judged::RuledOut { near: evidence.len(), why: words(sign, value) };
            }
            Some((true, value)) => {
                note(sign, value, &mut evidence, &mut families);
                clear &= sign.is_clear(value);
            }
        }
    }
    for sign in row.unless {
        if let Some((true, value)) = look(sign, view) {
            return Judged::RuledOut { near: evidence.len(), why: words(sign, value) };
        }
    }
    match alternatives(row, view, &mut evidence, &mut families) {
        Ok(is_clear) => clear &= is_clear,
        Err(judged) => return judged,
    }
    let mut signs = 0;
    let mut against = None;
    for sign in row.signs {
        match look(sign, view) {
            Some((true, value)) => {
                signs += 1;
                note(sign, value, &mut evidence, &mut families);
            }
            Some((false, value)) => against = against.or_else(|| Some(words(sign, value))),
            None => {}
        }
    }
    if signs < row.signs_min || (families.len() < 2 && !row.counted) {
        let why = "what could be seen is not enough: a second, independent signal is missing";
        return match against {
            Some(why) => Judged::RuledOut { near: evidence.len(), why },
            None => Judged::NotObservable(why.to_owned()),
        };
    }
    Judged::Holds(Held { clear, families: families.len(), evidence })
}

/// Checks that one of the alternatives of a row holds, and returns whether one does so clearly.
fn alternatives(
    row: &Verdict,
    view: &View<'_>,
    evidence: &mut Vec<String>,
    families: &mut BTreeSet<Family>,
) -> Result<bool, Judged> {
    let (mut holds, mut clear, mut against) = (row.any.is_empty(), row.any.is_empty(), None);
    for sign in row.any {
        match look(sign, view) {
            Some((true, value)) => {
                note(sign, value, evidence, families);
                holds = true;
                clear |= sign.is_clear(value);
            }
            Some((false, value)) => against = against.or_else(|| Some(words(sign, value))),
            None => {}
        }
    }
    match (holds, against) {
        (true, _) => Ok(clear),
        (false, Some(why)) => Err(Judged::RuledOut { near: evidence.len(), why }),
        (false, None) => {
            let names: Vec<&str> = row.any.iter().map(|sign| sign.signal.name).collect();
            Err(Judged::NotObservable(format!("{} are not observable", names.join(", "))))
        }
    }
}

fn note(sign: &Sign, value: f64, evidence: &mut Vec<String>, families: &mut BTreeSet<Family>) {
    families.insert(sign.signal.family);
    evidence.push(words(sign, value));
}

/// Whether a sign is there, with its value; `None` where it cannot be told.
fn look(sign: &Sign, view: &View<'_>) -> Option<(bool, f64)> {
    let value = (sign.signal.read)(view).filter(|value| value.is_finite())?;
    let there = match sign.bound {
        Bound::AtLeast(bound) => value >= bound,
        Bound::AtMost(bound) => value <= bound,
    };
    Some((there, value))
}

/// "busiest subject thread, of a core: 99 % (bound: at least 92 %; schedstat of its threads)".
fn words(sign: &Sign, value: f64) -> String {
    let signal = sign.signal;
    let value = written(value, signal.unit);
    match sign.bound {
        // A figure that is told whatever it is.
        Bound::AtLeast(0.0) => format!("{}: {value} ({})", signal.name, signal.source),
        _ => format!(
            "{}: {value} (bound: {}; {})",
            signal.name,
            sign.bound_in_words(),
            signal.source
        ),
    }
}

/// A load that got what it asked for, in time, has no bottleneck; any other has one that could not be
/// proven.
fn without_bottleneck(view: &View<'_>, common: Diagnosis) -> Diagnosis {
    let rates = &view.run.rates;
    let carried = signals::carried(view);
    // Without a baseline, clients that mostly think are all that is known of a load with think time.
    let thinks = view.run.plan["pace"]["think_ns"].as_u64().is_some_and(|ns| ns > 0);
    let mostly_thinks =
        thinks && (signals::IN_FLIGHT_SHARE.read)(view).is_some_and(|share| share < 0.5);
    let met = carried.map_or(mostly_thinks, |share| share >= signals::CARRIED_MIN);
    let missed: Vec<&str> =
        view.run.objectives.iter().filter(|one| !one.met).map(|one| one.text.as_str()).collect();
    let asked = match rates.offered_per_s {
        Some(offered) => format!(
            "good responses: {} of {} offered",
            written(view.goodput(), signals::Unit::PerSecond),
            written(offered, signals::Unit::PerSecond)
        ),
        None => format!("good responses: {}", written(view.goodput(), signals::Unit::PerSecond)),
    };
    let (verdict, claim, confidence) = match met {
        true => (
            NONE,
            "nothing limited this run: the load was carried in time".to_owned(),
            Confidence::Likely,
        ),
        false if !missed.is_empty() => (
            UNKNOWN,
            format!("{} was missed, and the evidence does not prove why", missed.join(", ")),
            Confidence::None,
        ),
        false => (
            UNKNOWN,
            "something limited this run, and the evidence does not prove what".to_owned(),
            Confidence::None,
        ),
    };
    Diagnosis { verdict: verdict.to_owned(), claim, confidence, evidence: vec![asked], ..common }
}

#[cfg(test)]
mod tests;

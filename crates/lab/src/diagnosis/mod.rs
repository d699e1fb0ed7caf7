//! From a record to its verdict: what limited the run, the evidence, what was ruled out and by what,
//! what would limit it next. Pure: the same record always gives the same verdict.
//!
//! Not for whether the figures may be believed (that is the generator's verdict on itself), and not
//! for measuring: what is not in the record is not known.

mod fingerprints;
mod headroom;
pub mod signals;
pub mod verdicts;
mod view;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use record::observed::Ended;
use record::run::{Candidate, Diagnosis, Run};

pub use fingerprints::{FINGERPRINTS, Fingerprint, Phase};
pub use headroom::Used;
use signals::{Family, written};
use verdicts::{Bound, NONE, Sign, UNKNOWN, VERDICTS, Verdict};
use view::{ORIGIN, SUBJECT, View};

/// The verdict on a run, from its record alone.
#[must_use]
pub fn diagnose(run: &Run) -> Diagnosis {
    let view = View::new(run);
    let mut found = judged(&view);
    // Whatever is said of the rest: this is what one has to know first.
    found.evidence.splice(0..0, ended(&view));
    found
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
    let mut held: Vec<(usize, Held)> = Vec::new();
    let (mut ruled_out, mut not_observable) = (Vec::new(), Vec::new());
    for (place, row) in VERDICTS.iter().enumerate() {
        match judge(row, view) {
            Judged::Holds(one) => held.push((place, one)),
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
        next_limits: headroom::next_limits(view),
        fingerprints: fingerprints::found(view),
        ..Diagnosis::default()
    };
    let mut held = held.into_iter();
    let Some((place, first)) = held.next() else {
        return without_bottleneck(view, common);
    };
    let row = &VERDICTS[place];
    Diagnosis {
        verdict: row.code.to_owned(),
        claim: row.claim.to_owned(),
        confidence: first.confidence,
        evidence: first.evidence,
        also: held.map(|(place, one)| candidate(&VERDICTS[place], one)).collect(),
        remedy: row.remedy.to_owned(),
        counter_test: row.counter_tests().map(|test| test.2).collect::<Vec<_>>().join("; "),
        ..common
    }
}

/// How much of each resource with a bound was used, the fullest first: the next limits. A resource of
/// which the record does not tell is absent.
#[must_use]
pub fn headroom(run: &Run) -> Vec<Used> {
    headroom::used(&View::new(run))
}

fn candidate(row: &Verdict, held: Held) -> Candidate {
    Candidate { verdict: row.code.to_owned(), confidence: held.confidence, evidence: held.evidence }
}

/// A verdict that holds.
struct Held {
    confidence: f64,
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

/// What a proof adds to the confidence, of what is missing to certainty.
const PROOF_WEIGHT: f64 = 0.55;
/// The same of another sign.
const SIGN_WEIGHT: f64 = 0.35;
/// Nothing is ever certain.
const CONFIDENCE_MAX: f64 = 0.98;

fn judge(row: &Verdict, view: &View<'_>) -> Judged {
    if !row.not_observable.is_empty() {
        return Judged::NotObservable(row.not_observable.to_owned());
    }
    let (mut evidence, mut families, mut doubt) = (Vec::new(), BTreeSet::new(), 1.0);
    for sign in row.proofs {
        match look(sign, view) {
            None => return Judged::NotObservable(format!("{} is not told", sign.signal.name)),
            Some((false, value)) => {
                return Judged::RuledOut { near: evidence.len(), why: words(sign, value) };
            }
            Some((true, value)) => {
                note(sign, value, &mut evidence, &mut families);
                doubt *= 1.0 - PROOF_WEIGHT;
            }
        }
    }
    for sign in row.unless {
        if let Some((true, value)) = look(sign, view) {
            return Judged::RuledOut { near: evidence.len(), why: words(sign, value) };
        }
    }
    let mut signs = 0;
    let mut against = None;
    for sign in row.signs {
        match look(sign, view) {
            Some((true, value)) => {
                signs += 1;
                note(sign, value, &mut evidence, &mut families);
                doubt *= 1.0 - SIGN_WEIGHT;
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
    Judged::Holds(Held { confidence: (1.0 - doubt).min(CONFIDENCE_MAX), evidence })
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
    format!("{}: {value} (bound: {}; {})", signal.name, sign.bound_in_words(), signal.source)
}

/// An open loop (or one with think time) that got what it asked for has no bottleneck; anything else
/// has one that could not be proven.
fn without_bottleneck(view: &View<'_>, common: Diagnosis) -> Diagnosis {
    let rates = &view.run.rates;
    let thinks = view.run.plan["pace"]["think_ns"].as_u64().is_some_and(|ns| ns > 0);
    let met = match rates.offered_per_s {
        Some(offered) => rates.responses_per_s >= offered * OFFERED_MET,
        None => thinks,
    };
    let asked = match rates.offered_per_s {
        Some(offered) => format!(
            "answered: {} of {} offered",
            written(rates.responses_per_s, signals::Unit::PerSecond),
            written(offered, signals::Unit::PerSecond)
        ),
        None => format!("answered: {}", written(rates.responses_per_s, signals::Unit::PerSecond)),
    };
    let (verdict, claim, confidence) = match met {
        true => (NONE, "nothing limited this run: what was asked for was carried", 0.9),
        false => {
            (UNKNOWN, "something limited this run, and what can be seen does not prove what", 0.0)
        }
    };
    Diagnosis {
        verdict: verdict.to_owned(),
        claim: claim.to_owned(),
        confidence,
        evidence: vec![asked],
        ..common
    }
}

/// An open loop that got this share of its offered rate got what it asked for.
const OFFERED_MET: f64 = 0.98;

#[cfg(test)]
mod tests;

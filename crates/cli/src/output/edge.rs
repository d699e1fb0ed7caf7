//! A search for the edge as people read it: what came of it in a sentence, the ladder, the law of scaling,
//! the verdict at the edge. Reads the record and nothing else.

use load::edge::{Find, limit_of, predicted_per_s};
use load::plan::Plan;
use record::edge::{Edge, End, Estimate, Outcome, Trial};
use record::units::{count_of, format_bytes, format_duration_ns};

use super::table::table;
use super::{diagnosis, summary};

/// What is about to be done, and for how long.
pub(crate) fn announcement(base: &Plan, find: Find, (usual_ns, most_ns): (u64, u64)) -> String {
    let urls = base.requests.iter().map(|request| request.url.to_string()).collect::<Vec<_>>();
    let what = Find::ALL.iter().find(|(one, _, _)| *one == find).map_or("", |(_, _, what)| what);
    let connections = match find {
        Find::Connections => String::new(),
        _ => format!(", {}", count_of(base.connections, "connection")),
    };
    format!(
        "{}\nsearching for the most {what}{connections}, {}; takes about {}, {} at the most\n",
        urls.join("\n"),
        count_of(base.threads as u64, "thread"),
        format_minutes(usual_ns),
        format_minutes(most_ns)
    )
}

fn format_minutes(ns: u64) -> String {
    match ns.div_ceil(1_000_000_000) {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// The line of a trial that has ended.
pub(crate) fn trial_line(trial: &Trial, find: Find) -> String {
    let word = match trial.outcome {
        Outcome::Held => "held",
        Outcome::Missed => "missed",
        Outcome::NoVerdict => "no verdict",
    };
    let level = match trial.purpose.as_str() {
        "scaling" => level_words(Find::Connections, trial.level),
        _ => level_words(find, trial.level),
    };
    let mut line = format!(
        "{:>3}  {:<9}  {level:>16}  {:>5.1} s  {:>10}/s  p50 {:>7}  p99 {:>7}  {word}",
        trial.number,
        trial.purpose,
        trial.length_s,
        number(trial.goodput_per_s()),
        format_duration_ns(trial.p50_ns),
        format_duration_ns(trial.p99_ns),
    );
    if !trial.reasons.is_empty() {
        line.push_str(&format!(": {}", trial.reasons.join("; ")));
    }
    line + "\n"
}

/// A number with a comma at each thousand; three digits when it is small.
fn number(value: f64) -> String {
    if value < 100.0 {
        let text = format!("{value:.2}");
        let trimmed = text.trim_end_matches('0').trim_end_matches('.');
        return trimmed.to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn level_words(find: Find, level: f64) -> String {
    match find {
        Find::Rate | Find::Bandwidth => format!("{}/s", number(level)),
        Find::ConnectionsPerSecond => format!("{} connections/s", number(level)),
        Find::Connections if level == 1.0 => "1 connection".to_owned(),
        Find::Connections => format!("{} connections", number(level)),
    }
}

/// Bytes per response, as the trials that held saw them.
fn bytes_each(edge: &Edge) -> Option<f64> {
    let held = edge
        .trials
        .iter()
        .rev()
        .find(|trial| trial.outcome == Outcome::Held && trial.responses_per_s > 0.0)?;
    Some(held.bytes_in_per_s / held.responses_per_s)
}

/// A level in the words of what was searched for.
fn level_of(edge: &Edge, level: f64) -> String {
    let find = Find::parse(&edge.find).unwrap_or(Find::Rate);
    match (find, bytes_each(edge)) {
        (Find::Bandwidth, Some(bytes)) => {
            let per_s = level * bytes;
            format!(
                "{}/s ({:.1} Mbit/s, {}/s)",
                format_bytes(per_s),
                per_s * 8.0 / 1e6,
                number(level)
            )
        }
        _ => level_words(find, level),
    }
}

/// What came of it, in a sentence or two.
pub(crate) fn words(edge: &Edge) -> String {
    let found = &edge.conclusion;
    let goal = edge.objectives.join(", ");
    let level =
        |level: Option<f64>| level.map_or_else(|| "?".to_owned(), |level| level_of(edge, level));
    let reasons = found.reasons.join("; ");
    let mut text = match found.end {
        End::Found => {
            let trials = match found.verifications {
                // What held when it was checked again, after a drift.
                2 => format!("{} of 2 trials, at the end", found.verified),
                of => format!("{} of {of} long trials", found.verified),
            };
            let first = format!("holds {goal} up to {} ({trials}", level(found.level));
            let bound = found.upper.map(|upper| format!("; missed at {}", level(Some(upper))));
            first + &bound.unwrap_or_default() + ")"
        }
        End::Top => format!("holds {goal} at {}, the most that was tried", level(found.level)),
        End::BelowLowest => {
            format!("does not hold {goal} even at {}: {reasons}", level(found.upper))
        }
        End::GeneratorLimit => format!(
            "{} at {}: the edge is at least {} ({reasons})",
            limit_of(&found.reasons),
            level(found.limited_at),
            found.lower.map_or_else(|| "unknown".to_owned(), |lower| level(Some(lower)))
        ),
        End::NotVerified => format!(
            "held {goal} in short trials and not in long ones; what was tried last was {}: {reasons}",
            level(found.upper)
        ),
        End::Drifted => format!(
            "no level is known that still holds {goal}: {} ({reasons})",
            found.drift.as_deref().unwrap_or("what had been verified does not hold any more")
        ),
        End::Stopped => format!(
            "ended before it was found: held {}, missed {}",
            found.lower.map_or_else(|| "nothing yet".to_owned(), |lower| level(Some(lower))),
            found.upper.map_or_else(|| "nothing yet".to_owned(), |upper| level(Some(upper)))
        ),
    };
    if let Some(knee) = &edge.knee {
        let Estimate { value, low, high } = knee.level;
        text.push_str(&format!(
            "; knee at {} ({}..{})",
            level_of(edge, value),
            number(low),
            number(high)
        ));
    }
    if let Some((from, to)) = edge.operating_range {
        text.push_str(&format!("; run it at {}..{}", number(from), level_of(edge, to)));
    }
    text
}

/// The whole summary.
pub(crate) fn summary(edge: &Edge, colour: bool) -> String {
    let mut text = format!("\n{}\n", edge.words);
    let mut line = |name: &str, words: &str| text.push_str(&format!("{name:<12} {words}\n"));
    if !edge.conclusion.reasons.is_empty() && edge.conclusion.end == End::Found {
        line("above it", &edge.conclusion.reasons.join("; "));
    }
    if let Some(drift) = &edge.conclusion.drift
        && edge.conclusion.end != End::Drifted
    {
        line("drift", drift);
    }
    for note in &edge.notes {
        line("note", note);
    }
    text.push_str(&ladder(edge));
    text.push_str(&scaling(edge));
    text.push_str(&at_edge(edge, colour));
    text.push_str(&format!(
        "searched     {} in {:.0} s\n",
        count_of(edge.trials.len() as u64, "trial"),
        edge.duration_s
    ));
    text
}

fn ladder(edge: &Edge) -> String {
    let of_ladder: Vec<_> = edge.trials.iter().filter(|trial| trial.purpose == "ladder").collect();
    if of_ladder.is_empty() {
        return String::new();
    }
    let with_direct = !edge.added.is_empty();
    let mut head =
        vec!["ladder", "offered/s", "goodput/s", "p50", "p99", "observer p50", "p99", "in flight"];
    head.extend(if with_direct { &["direct p50", "p99", "adds mean"][..] } else { &[] });
    head.push("");
    let mut rows = vec![head.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>()];
    for trial in of_ladder {
        let beside_per_s = trial.observer.map_or(0.0, |seen| seen.responses_per_s);
        let answered_per_s = trial.goodput_per_s() + beside_per_s;
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_duration_ns);
        let mut row = vec![
            String::new(),
            number(trial.level),
            number(answered_per_s),
            time(Some(trial.p50_ns)),
            time(Some(trial.p99_ns)),
            time(trial.observer.map(|seen| seen.p50_ns)),
            time(trial.observer.map(|seen| seen.p99_ns)),
            number(trial.in_flight_mean),
        ];
        if with_direct {
            let added = edge.added.iter().find(|added| added.level == trial.level);
            row.push(time(added.map(|added| added.direct_p50_ns)));
            row.push(time(added.map(|added| added.direct_p99_ns)));
            row.push(added.map_or_else(|| "-".to_owned(), |added| signed(added.mean_ns)));
        }
        row.push(match (trial.outcome, trial.littles_law_holds) {
            (Outcome::Held, true) => String::new(),
            (Outcome::Missed, true) => "missed".to_owned(),
            (Outcome::NoVerdict, true) => "no verdict".to_owned(),
            (_, false) => {
                format!("{} in flight by Little's law", number(trial.in_flight_by_littles_law))
            }
        });
        rows.push(row);
    }
    format!("\n{}\n", table(&rows))
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "+" };
    format!("{sign}{}", format_duration_ns(ns.unsigned_abs()))
}

fn scaling(edge: &Edge) -> String {
    let Some(law) = &edge.scaling else {
        return String::new();
    };
    let interval = |estimate: &Estimate| {
        let Estimate { value, low, high } = estimate;
        format!("{value:.4} ({low:.4}..{high:.4})")
    };
    let mut text = format!(
        "scaling      contention {}, coherency {}, {}/s by one connection ({}..{})\n",
        interval(&law.alpha),
        interval(&law.beta),
        number(law.gamma_per_s.value),
        number(law.gamma_per_s.low),
        number(law.gamma_per_s.high),
    );
    let measured = law.measured_max;
    let best = match (&law.best_connections, law.best_per_s) {
        (Some(best), Some(per_s)) => format!(
            "most with {} ({}..{}): {}/s",
            level_words(Find::Connections, best.value),
            number(best.low),
            number(best.high),
            number(per_s)
        ),
        _ => format!("no maximum within twice the {measured} connections that were measured"),
    };
    text.push_str(&format!("             {best}"));
    if let Some(twice) = predicted_per_s(law, 2.0 * measured as f64) {
        text.push_str(&format!("; {}/s with {}", number(twice), 2 * measured));
    }
    text + "\n"
}

/// The verdict at the edge: what limited the subject there, and whether that run may be believed.
fn at_edge(edge: &Edge, colour: bool) -> String {
    let Some(run) = &edge.at_edge else {
        return String::new();
    };
    let mut text = match edge.stopped_by.as_ref().or(run.diagnosis.as_ref()) {
        Some(diagnosis) => diagnosis::words(diagnosis, "stopped by", false),
        None => String::new(),
    };
    let cpus = |cpus: Option<f64>| cpus.map_or_else(|| "?".to_owned(), |cpus| format!("{cpus:.2}"));
    text.push_str(&format!(
        "processors   subject {}, others {}, of {}, at the edge\n",
        cpus(run.cpu.subject_cpus),
        cpus(run.cpu.foreign_cpus),
        run.host.cpus
    ));
    text + &summary::verdict(run, colour)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::edge::{Conclusion, Knee};

    fn edge(conclusion: Conclusion) -> Edge {
        Edge {
            schema: record::edge::SCHEMA.to_owned(),
            weir: record::run::Weir { version: String::new(), commit: String::new() },
            command: Vec::new(),
            started_at: String::new(),
            duration_s: 60.0,
            host: record::facts::HostFacts::default(),
            plan: serde_json::Value::Null,
            find: "rate".to_owned(),
            objectives: vec!["p99<5ms".to_owned()],
            conclusion,
            words: String::new(),
            trials: Vec::new(),
            knee: None,
            operating_range: None,
            scaling: None,
            added: Vec::new(),
            notes: Vec::new(),
            stopped_by: None,
            stopped_run: None,
            at_edge: None,
        }
    }

    #[test]
    fn what_was_found_comes_in_a_sentence() {
        let mut found = edge(Conclusion {
            end: End::Found,
            level: Some(8240.0),
            upper: Some(8390.0),
            verified: 3,
            verifications: 3,
            ..Conclusion::default()
        });
        let level = Estimate { value: 7900.0, low: 7700.0, high: 8000.0 };
        found.knee = Some(Knee { level, ..Knee::default() });
        found.operating_range = Some((3950.0, 6320.0));
        assert_eq!(
            words(&found),
            "holds p99<5ms up to 8,240/s (3 of 3 long trials; missed at 8,390/s); knee at 7,900/s \
             (7,700..8,000); run it at 3,950..6,320/s"
        );
    }

    #[test]
    fn after_a_drift_nothing_is_said_to_hold_that_does_not() {
        let drift = Some("1000 was verified, but at the end only 950 held".to_owned());
        let lower = edge(Conclusion {
            end: End::Found,
            level: Some(950.0),
            upper: Some(1000.0),
            verified: 2,
            verifications: 2,
            drift,
            ..Conclusion::default()
        });
        let text = "holds p99<5ms up to 950/s (2 of 2 trials, at the end; missed at 1,000/s)";
        assert_eq!(words(&lower), text);
        let drift = "1000 was verified, but at the end not even 815 held";
        let mut none = edge(Conclusion {
            end: End::Drifted,
            upper: Some(815.0),
            drift: Some(drift.to_owned()),
            reasons: vec!["p99<5ms was missed: 9.00ms".to_owned()],
            ..Conclusion::default()
        });
        none.words = words(&none);
        let said = summary(&none, false);
        assert!(said.contains("no level is known that still holds p99<5ms: 1000 was"), "{said}");
        assert!(
            !said.contains("holds p99<5ms up to") && said.matches(drift).count() == 1,
            "{said}"
        );
    }

    #[test]
    fn a_limited_generator_is_said_first() {
        let limited = edge(Conclusion {
            end: End::GeneratorLimit,
            lower: Some(6000.0),
            limited_at: Some(12_000.0),
            reasons: vec!["client_bound: busy".to_owned()],
            ..Conclusion::default()
        });
        let text = words(&limited);
        assert!(
            text.starts_with("client-bound at 12,000/s: the edge is at least 6,000/s"),
            "{text}"
        );
    }

    #[test]
    fn numbers_have_commas_and_small_ones_digits() {
        let texts = [0.5, 12.25, 99.9, 100.4, 1234.0, 1_234_567.0].map(number);
        assert_eq!(texts, ["0.5", "12.25", "99.9", "100", "1,234", "1,234,567"]);
    }
}

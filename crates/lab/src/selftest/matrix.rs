//! The confusion matrix: what was induced against what was named first. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::cases::{Kind, Set};
use super::reliability::{Level, levels, wrong_sure};
use super::split::Part;

/// The name of the schema.
pub const SCHEMA: &str = "weir.selftest/1";
/// Share of the runs of each verdict that have to be right.
pub const RIGHT_SHARE_MIN: f64 = 0.9;
/// The same for healthy runs.
pub const HEALTHY_SHARE_MIN: f64 = 0.95;
/// The same for healthy runs of the proving ground.
pub const FOREIGN_HEALTHY_SHARE_MIN: f64 = 0.97;
/// The verdict of a healthy run.
pub const HEALTHY: &str = "none";

/// One run of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The case.
    pub case: String,
    /// The verdict that would be right.
    pub induced: String,
    /// All verdicts that are right when they come first; absent in results from older versions, where it
    /// is `induced`.
    #[serde(default)]
    pub right: Vec<String>,
    /// The kind of the case: `healthy`, `single cause`, `decoy` or `two causes`.
    #[serde(default)]
    pub kind: String,
    /// The set of the case; absent in results from older versions: `induced`.
    #[serde(default = "induced")]
    pub set: String,
    /// Its part of the proving ground.
    #[serde(default)]
    pub part: Option<Part>,
    /// Which repetition, from 1 on.
    pub repetition: u32,
    /// The verdict that came first; none where the run failed.
    pub reported: Option<String>,
    /// Its confidence: a level in words, or a number rounded to tenths.
    #[serde(default, deserialize_with = "level_of")]
    pub confidence: Option<String>,
    /// What else held.
    pub also: Vec<String>,
    /// Why the run failed.
    pub error: Option<String>,
    /// How long it took, with everything around the load.
    pub length_s: f64,
}

impl Outcome {
    /// Whether a right verdict came first.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let Some(reported) = &self.reported else { return false };
        *reported == self.induced || self.right.contains(reported)
    }

    /// Of two causes: whether one came first and the other was reported too.
    #[must_use]
    pub fn has_both(&self) -> Option<bool> {
        if self.kind != Kind::TwoCauses.name() {
            return None;
        }
        let is_other = |verdict: &&String| Some(*verdict) != self.reported.as_ref();
        let mut others = self.right.iter().filter(is_other);
        Some(self.is_right() && others.all(|verdict| self.also.contains(verdict)))
    }
}

fn induced() -> String {
    Set::Induced.name().to_owned()
}

/// A level of confidence as a text: as it is written, and a number rounded to tenths.
#[must_use]
pub fn level(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(level) => Some(level.clone()),
        serde_json::Value::Number(number) => Some(format!("{:.1}", number.as_f64()?)),
        _ => None,
    }
}

fn level_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(level(&serde_json::Value::deserialize(from)?))
}

/// All runs of one verdict, or of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was induced, or the case's name.
    pub induced: String,
    /// Runs.
    pub runs: u32,
    /// Runs with the right verdict first.
    pub right: u32,
    /// `right` as a share of `runs`.
    pub right_share: f64,
    /// The share that is demanded.
    pub demanded_share: f64,
    /// How often each verdict came first.
    pub reported: BTreeMap<String, u32>,
    /// Runs that failed.
    pub failed: u32,
}

/// A verdict that cannot be induced here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotHere {
    /// The verdict, or the case.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The result of a self-test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// How long it took.
    pub duration_s: f64,
    /// Seed of the order.
    pub seed: u64,
    /// The set of its cases; several sets are joined by `+`.
    #[serde(default = "induced")]
    pub set: String,
    /// The part of the proving ground: `development`, `held-out` or `all`; absent for the induced set.
    #[serde(default)]
    pub part: Option<String>,
    /// Whether it was ended early.
    pub partial: bool,
    /// By verdict: the matrix.
    pub verdicts: Vec<Row>,
    /// By case.
    pub cases: Vec<Row>,
    /// What cannot be induced here.
    pub not_here: Vec<NotHere>,
    /// Every run, in the order in which they ran.
    pub outcomes: Vec<Outcome>,
    /// The reliability of its confidence, by level.
    #[serde(default)]
    pub reliability: Vec<Level>,
    /// Runs whose first verdict was wrong and claimed to be sure.
    #[serde(default)]
    pub wrong_sure: u32,
    /// Runs that failed: neither right nor a wrong verdict.
    #[serde(default)]
    pub failed: u32,
    /// Runs of two causes, and those of them in which both were reported, one of them first.
    #[serde(default)]
    pub both: (u32, u32),
    /// Whether every run was made, enough of them are right, and no wrong verdict claimed to be sure.
    pub passed: bool,
}

/// Sums outcomes up by a name of theirs, in the order in which `names` has them.
#[must_use]
pub fn rows(outcomes: &[Outcome], names: &[&str], by: fn(&Outcome) -> &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for &name in names {
        let of_name: Vec<&Outcome> = outcomes.iter().filter(|one| by(one) == name).collect();
        let Some(first) = of_name.first() else { continue };
        let healthy = match (first.induced == HEALTHY, Set::named(&first.set)) {
            (false, _) => None,
            (true, Some(Set::Foreign)) => Some(FOREIGN_HEALTHY_SHARE_MIN),
            (true, _) => Some(HEALTHY_SHARE_MIN),
        };
        let mut row = Row {
            induced: name.to_owned(),
            runs: u32::try_from(of_name.len()).unwrap_or(u32::MAX),
            demanded_share: healthy.unwrap_or(RIGHT_SHARE_MIN),
            ..Row::default()
        };
        for outcome in of_name {
            row.right += u32::from(outcome.is_right());
            match &outcome.reported {
                Some(verdict) => *row.reported.entry(verdict.clone()).or_default() += 1,
                None => row.failed += 1,
            }
        }
        row.right_share = f64::from(row.right) / f64::from(row.runs);
        rows.push(row);
    }
    rows
}

impl Row {
    /// Whether enough of it is right.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.right_share >= self.demanded_share
    }
}

/// Whether every row is right often enough; nothing at all is not, nor is a test that was ended early.
#[must_use]
pub fn passed(rows: &[Row], partial: bool) -> bool {
    !partial && !rows.is_empty() && rows.iter().all(Row::is_enough)
}

/// The same for the proving ground, whose rows have few runs each: all runs together, and the healthy
/// ones by themselves.
#[must_use]
pub fn foreign_passed(rows: &[Row], partial: bool) -> bool {
    let share = |rows: &mut dyn Iterator<Item = &Row>| {
        let (runs, right) =
            rows.fold((0, 0), |(runs, right), row| (runs + row.runs, right + row.right));
        // None at all misses nothing.
        if runs == 0 { 1.0 } else { f64::from(right) / f64::from(runs) }
    };
    let mut healthy = rows.iter().filter(|row| row.induced == HEALTHY);
    !partial
        && !rows.is_empty()
        && share(&mut rows.iter()) >= RIGHT_SHARE_MIN
        && share(&mut healthy) >= FOREIGN_HEALTHY_SHARE_MIN
}

impl SelfTest {
    /// Works out everything that follows from the outcomes. `partial` has to be set before.
    #[must_use]
    pub fn summed_up(mut self) -> Self {
        let names = |by: fn(&Outcome) -> &str| {
            let mut names: Vec<&str> = Vec::new();
            for outcome in &self.outcomes {
                if !names.contains(&by(outcome)) {
                    names.push(by(outcome));
                }
            }
            // The healthy ones first, whatever ran first.
            names.sort_by_key(|name| (*name != HEALTHY, *name));
            names
        };
        let by_verdict: fn(&Outcome) -> &str = |one| &one.induced;
        let by_case: fn(&Outcome) -> &str = |one| &one.case;
        self.verdicts = rows(&self.outcomes, &names(by_verdict), by_verdict);
        self.cases = rows(&self.outcomes, &names(by_case), by_case);
        self.reliability = levels(&self.outcomes);
        self.wrong_sure = wrong_sure(&self.outcomes);
        let count = |is: &dyn Fn(&Outcome) -> bool| {
            u32::try_from(self.outcomes.iter().filter(|one| is(one)).count()).unwrap_or(u32::MAX)
        };
        self.failed = count(&|one| one.reported.is_none());
        self.both =
            (count(&|one| one.has_both().is_some()), count(&|one| one.has_both() == Some(true)));
        let enough = match Set::named(&self.set) {
            Some(Set::Induced) => passed(&self.verdicts, self.partial),
            _ => foreign_passed(&self.verdicts, self.partial),
        };
        self.passed = enough && self.wrong_sure == 0;
        self
    }
}

/// The matrix as text: a line a row, with what was reported instead.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.induced.len()).max().unwrap_or(0).max("induced".len());
    let mut text = format!("{:width$}  runs  right  reported first\n", "induced");
    for row in rows {
        let mut reported: Vec<(&String, &u32)> = row.reported.iter().collect();
        reported.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
        let mut said: Vec<String> =
            reported.iter().map(|(verdict, runs)| format!("{verdict} {runs}")).collect();
        if row.failed > 0 {
            said.push(format!("(failed {})", row.failed));
        }
        let mark = if row.is_enough() { ' ' } else { '!' };
        text.push_str(&format!(
            "{:width$}  {:4}  {:4.0}%{mark} {}\n",
            row.induced,
            row.runs,
            row.right_share * 100.0,
            said.join(", ")
        ));
    }
    text
}

/// Reads a stored self-test.
///
/// # Errors
/// It cannot be read, or is something else.
pub fn read(text: &str) -> Result<SelfTest, String> {
    let read: SelfTest = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match read.schema == SCHEMA {
        true => Ok(read),
        false => Err(format!("its schema is '{}', not '{SCHEMA}'", read.schema)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(induced: &str, reported: Option<&str>) -> Outcome {
        Outcome {
            case: format!("{induced}_case"),
            induced: induced.to_owned(),
            reported: reported.map(str::to_owned),
            ..Outcome::default()
        }
    }

    #[test]
    fn shares_and_confusions_are_counted() {
        let mut outcomes =
            vec![outcome("link_bound", Some("bufferbloat")), outcome("link_bound", None)];
        outcomes.extend((0..8).map(|_| outcome("link_bound", Some("link_bound"))));
        outcomes.extend(
            (0..20).map(|at| outcome("none", Some(if at < 19 { "none" } else { "unknown" }))),
        );
        let rows = rows(&outcomes, &["none", "link_bound", "never"], |one| &one.induced);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].runs, rows[0].right, rows[0].is_enough()), (20, 19, true));
        assert_eq!((rows[1].right, rows[1].failed, rows[1].is_enough()), (8, 1, false));
        assert_eq!(rows[1].reported["bufferbloat"], 1);
        assert!(!passed(&rows, false) && passed(&rows[..1], false) && !passed(&[], false));
        assert!(!passed(&rows[..1], true), "what was ended early has not passed");
        let text = text(&rows);
        assert!(
            text.contains("link_bound    10    80%! link_bound 8, bufferbloat 1, (failed 1)"),
            "{text}"
        );
    }

    #[test]
    fn a_result_is_read_again() {
        let result = SelfTest { schema: SCHEMA.to_owned(), seed: 3, ..SelfTest::default() };
        assert_eq!(read(&serde_json::to_string(&result).unwrap()), Ok(result));
        assert!(read("{}").is_err());
    }
}

//! Confusion matrix: induced cause against first reported verdict. No I/O.

use std::collections::BTreeMap;

use record::sorted::{sort_by, sort_by_key};
use serde::{Deserialize, Serialize};

use crate::cases::CaseSet;
use crate::outcome::{CaseOutcome, induced};
use crate::reliability::{ConfidenceReliability, count_wrong_sure, reliability_levels};

pub const SCHEMA: &str = "weir.selftest/1";
/// Minimum fraction of right runs for each verdict.
pub const RIGHT_FRACTION_MIN: f64 = 0.9;
/// Minimum fraction of right runs among healthy ones.
pub const HEALTHY_FRACTION_MIN: f64 = 0.95;
/// Minimum fraction of right runs among healthy ones of the proving ground.
pub const FOREIGN_HEALTHY_FRACTION_MIN: f64 = 0.97;
/// Verdict of a healthy run.
pub const HEALTHY: &str = "none";

/// Summary of all runs of one verdict, or of one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MatrixRow {
    /// Induced cause, or the case's name.
    pub induced: String,
    pub runs: u32,
    /// Number of runs with the right verdict first.
    pub right: u32,
    /// `right` as a fraction of `runs`.
    pub right_fraction: f64,
    /// Required minimum fraction.
    pub required_fraction: f64,
    /// Number of times that each verdict came first.
    pub reported: BTreeMap<String, u32>,
    pub failed: u32,
}

/// Verdict that cannot be induced here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotInducible {
    /// Name of the verdict, or of the case.
    pub name: String,
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    pub schema: String,
    /// Start time, RFC 3339.
    pub started_at: String,
    pub duration_s: f64,
    /// Seed of the order.
    pub seed: u64,
    /// Set of its cases; several sets are joined by `+`.
    #[serde(default = "induced")]
    pub set: String,
    /// Part of the proving ground: `development`, `held-out` or `all`; absent for the induced set.
    #[serde(default)]
    pub part: Option<String>,
    /// Command that started the loads (`--load-prefix`); absent: weir itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_prefix: Option<String>,
    /// True if it was stopped early.
    pub partial: bool,
    pub verdicts: Vec<MatrixRow>,
    pub cases: Vec<MatrixRow>,
    /// Verdicts and cases that cannot be induced here.
    pub not_inducible: Vec<NotInducible>,
    /// All runs, in the order in which they ran.
    pub outcomes: Vec<CaseOutcome>,
    #[serde(default)]
    pub reliability: Vec<ConfidenceReliability>,
    /// Number of runs whose first verdict was wrong but claimed to be sure.
    #[serde(default)]
    pub wrong_sure: u32,
    /// Number of failed runs: neither right nor a wrong verdict.
    #[serde(default)]
    pub failed: u32,
    /// Number of runs with two causes, and of those in which both were reported, one of them first.
    #[serde(default)]
    pub both: (u32, u32),
    /// True if every run was made, enough are right, and no wrong verdict claimed to be sure.
    pub passed: bool,
}

/// Summarises outcomes by a name, in the order of `names`.
pub fn matrix_rows(outcomes: &[CaseOutcome], names: &[&str], by: fn(&CaseOutcome) -> &str) -> Vec<MatrixRow> {
    let mut rows = Vec::new();
    for &name in names {
        let named_outcomes: Vec<&CaseOutcome> =
            outcomes.iter().filter(|outcome| by(outcome) == name).collect();
        let Some(first) = named_outcomes.first() else { continue };
        let healthy = match (first.induced == HEALTHY, CaseSet::from_name(&first.set)) {
            (false, _) => None,
            (true, Some(CaseSet::Foreign)) => Some(FOREIGN_HEALTHY_FRACTION_MIN),
            (true, _) => Some(HEALTHY_FRACTION_MIN),
        };
        let mut row = MatrixRow {
            induced: name.to_owned(),
            runs: u32::try_from(named_outcomes.len()).unwrap_or(u32::MAX),
            required_fraction: healthy.unwrap_or(RIGHT_FRACTION_MIN),
            ..MatrixRow::default()
        };
        for outcome in named_outcomes {
            row.right += u32::from(outcome.is_right());
            match &outcome.reported {
                Some(verdict) => *row.reported.entry(verdict.clone()).or_default() += 1,
                None => row.failed += 1,
            }
        }
        row.right_fraction = f64::from(row.right) / f64::from(row.runs);
        rows.push(row);
    }
    rows
}

impl MatrixRow {
    /// Returns true if enough runs are right.
    pub fn meets_requirement(&self) -> bool {
        self.right_fraction >= self.required_fraction
    }
}

/// Returns true if every row has enough right runs; false for no rows, and for a test that was
/// stopped early.
pub fn passed(rows: &[MatrixRow], partial: bool) -> bool {
    !partial && !rows.is_empty() && rows.iter().all(MatrixRow::meets_requirement)
}

/// Returns the same for the proving ground, whose rows have few runs each: all runs together, and
/// the healthy ones separately.
pub fn foreign_passed(rows: &[MatrixRow], partial: bool) -> bool {
    let right_fraction = |rows: &mut dyn Iterator<Item = &MatrixRow>| {
        let (runs, right) = rows.fold((0, 0), |(runs, right), row| (runs + row.runs, right + row.right));
        // No runs at all miss nothing.
        if runs == 0 { 1.0 } else { f64::from(right) / f64::from(runs) }
    };
    let mut healthy = rows.iter().filter(|row| row.induced == HEALTHY);
    !partial
        && !rows.is_empty()
        && right_fraction(&mut rows.iter()) >= RIGHT_FRACTION_MIN
        && right_fraction(&mut healthy) >= FOREIGN_HEALTHY_FRACTION_MIN
}

impl SelfTest {
    /// Computes everything that follows from the outcomes. `partial` must be set before.
    #[must_use]
    pub fn with_summaries(mut self) -> Self {
        let names = |by: fn(&CaseOutcome) -> &str| {
            let mut names: Vec<&str> = Vec::new();
            for outcome in &self.outcomes {
                if !names.contains(&by(outcome)) {
                    names.push(by(outcome));
                }
            }
            // Healthy rows come first, whatever ran first.
            sort_by_key(&mut names, |name| (*name != HEALTHY, *name));
            names
        };
        let by_verdict: fn(&CaseOutcome) -> &str = |outcome| &outcome.induced;
        let by_case: fn(&CaseOutcome) -> &str = |outcome| &outcome.case;
        self.verdicts = matrix_rows(&self.outcomes, &names(by_verdict), by_verdict);
        self.cases = matrix_rows(&self.outcomes, &names(by_case), by_case);
        self.reliability = reliability_levels(&self.outcomes);
        self.wrong_sure = count_wrong_sure(&self.outcomes);
        let count = |is: &dyn Fn(&CaseOutcome) -> bool| {
            u32::try_from(self.outcomes.iter().filter(|outcome| is(outcome)).count()).unwrap_or(u32::MAX)
        };
        self.failed = count(&|outcome| outcome.reported.is_none());
        self.both = (
            count(&|outcome| outcome.has_both().is_some()),
            count(&|outcome| outcome.has_both() == Some(true)),
        );
        let enough = match CaseSet::from_name(&self.set) {
            Some(CaseSet::Induced) => passed(&self.verdicts, self.partial),
            _ => foreign_passed(&self.verdicts, self.partial),
        };
        self.passed = enough && self.wrong_sure == 0;
        self
    }
}

/// Formats the matrix as text: one line per row, with the wrong reports.
pub fn matrix_text(rows: &[MatrixRow]) -> String {
    let width = rows.iter().map(|row| row.induced.len()).max().unwrap_or(0).max("induced".len());
    let mut text = format!("{:width$}  runs  right  reported first\n", "induced");
    for row in rows {
        let mut reported: Vec<(&String, &u32)> = row.reported.iter().collect();
        sort_by(&mut reported, |left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
        let mut reported: Vec<String> =
            reported.iter().map(|(verdict, runs)| format!("{verdict} {runs}")).collect();
        if row.failed > 0 {
            reported.push(format!("(failed {})", row.failed));
        }
        let mark = if row.meets_requirement() { ' ' } else { '!' };
        text.push_str(&format!(
            "{:width$}  {:4}  {:4.0}%{mark} {}\n",
            row.induced,
            row.runs,
            row.right_fraction * 100.0,
            reported.join(", ")
        ));
    }
    text
}

/// Reason why a stored self-test cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
    #[error("its schema is '{0}', not '{SCHEMA}'")]
    Schema(String),
}

/// Parses a stored self-test.
///
/// # Errors
/// The text is invalid, or has another schema.
pub fn parse_self_test(text: &str) -> Result<SelfTest, SelfTestError> {
    let read: SelfTest = serde_json::from_str(text)?;
    match read.schema == SCHEMA {
        true => Ok(read),
        false => Err(SelfTestError::Schema(read.schema)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(induced: &str, reported: Option<&str>) -> CaseOutcome {
        CaseOutcome {
            case: format!("{induced}_case"),
            induced: induced.to_owned(),
            reported: reported.map(str::to_owned),
            ..CaseOutcome::default()
        }
    }

    #[test]
    fn shares_and_confusions_are_counted() {
        let mut outcomes = vec![outcome("link_bound", Some("bufferbloat")), outcome("link_bound", None)];
        outcomes.extend((0..8).map(|_| outcome("link_bound", Some("link_bound"))));
        outcomes.extend((0..20).map(|at| outcome("none", Some(if at < 19 { "none" } else { "unknown" }))));
        let rows = matrix_rows(&outcomes, &["none", "link_bound", "never"], |outcome| &outcome.induced);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].runs, rows[0].right, rows[0].meets_requirement()), (20, 19, true));
        assert_eq!((rows[1].right, rows[1].failed, rows[1].meets_requirement()), (8, 1, false));
        assert_eq!(rows[1].reported["bufferbloat"], 1);
        assert!(!passed(&rows, false) && passed(&rows[..1], false) && !passed(&[], false));
        assert!(!passed(&rows[..1], true), "what was ended early has not passed");
        let text = matrix_text(&rows);
        assert!(text.contains("link_bound    10    80%! link_bound 8, bufferbloat 1, (failed 1)"), "{text}");
    }

    #[test]
    fn a_result_is_read_again() {
        let result = SelfTest { schema: SCHEMA.to_owned(), seed: 3, ..SelfTest::default() };
        assert_eq!(parse_self_test(&serde_json::to_string(&result).unwrap()).unwrap(), result);
        assert!(parse_self_test("{}").is_err());
    }
}

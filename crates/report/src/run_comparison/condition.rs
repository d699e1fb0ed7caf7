//! Conditions of a regression: `p99>+10%,rate<-5%`. Every problem of a list is reported at once.

use record::invalid_value;
use record::problem::InvalidValue;
use record::units::parse_fraction_up_to;

use super::ComparedFigure;

/// Condition of a regression: a figure that changes by more than a limit in its bad direction.
#[derive(Clone, Debug, PartialEq)]
pub struct RegressionCondition {
    pub(super) figure: ComparedFigure,
    /// Limit of the change in the bad direction: a fraction of the baseline, or percentage points of errors.
    pub(super) limit: f64,
    text: String,
}

impl RegressionCondition {
    /// Parses a list of conditions.
    ///
    /// # Errors
    /// All problems of the list.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Vec<InvalidValue>> {
        let mut problems = Vec::new();
        let parsed = text.split(',').map(str::trim).map(Self::parse);
        let conditions =
            parsed.filter_map(|condition| condition.map_err(|problem| problems.push(problem)).ok()).collect();
        if problems.is_empty() { Ok(conditions) } else { Err(problems) }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let at = text.find(['<', '>']).ok_or_else(|| invalid_value!("'{text}': {SYNTAX}"))?;
        let (name, change) = (text[..at].trim(), text[at + 1..].trim());
        let figure = ComparedFigure::ALL.into_iter().find(|figure| figure.name() == name);
        let figure = figure.ok_or_else(|| unknown_figure(text, name))?;
        let (sign, operator) = if figure.is_worse_if_higher() { ('+', '>') } else { ('-', '<') };
        let example = format!("{name}{operator}{sign}10%");
        if !text[at..].starts_with(operator) {
            return Err(invalid_value!("'{text}' is no regression of {name}: write {example}"));
        }
        let amount = change.strip_prefix(sign).ok_or_else(|| {
            invalid_value!(
                "'{text}': the limit is a change from the baseline, with its sign: write {example}"
            )
        })?;
        if !amount.ends_with('%') {
            return Err(invalid_value!("'{text}': the limit is in per cent: write {example}"));
        }
        let limit =
            parse_fraction_up_to(amount, LIMIT_MAX).map_err(|why| invalid_value!("'{text}': {why}"))?;
        Ok(Self { figure, limit, text: text.to_owned() })
    }
}

/// Largest limit: a hundred times the baseline.
const LIMIT_MAX: f64 = 100.0;

const SYNTAX: &str =
    "write conditions such as p99>+10%, p50>+5%, rate<-5% or errors>+0.1% (percentage points)";

fn unknown_figure(text: &str, name: &str) -> InvalidValue {
    let is_percentile = name.strip_prefix('p').is_some_and(|rest| rest.parse::<f64>().is_ok());
    if is_percentile || ["mean", "max"].contains(&name) {
        return invalid_value!(
            "'{text}': the seconds of a record have p50 and p99 only, which an interval needs: write p99>+10%"
        );
    }
    invalid_value!("'{text}': '{name}' is unknown; {SYNTAX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_parsed_into_limits_in_the_bad_direction() {
        let parsed = RegressionCondition::parse_list("p99>+10%, rate<-5%,errors>+0.1%,p50>+0%").unwrap();
        let limits: Vec<_> = parsed.iter().map(|condition| (condition.figure, condition.limit)).collect();
        assert_eq!(limits[0], (ComparedFigure::P99, 0.1));
        assert_eq!(limits[1], (ComparedFigure::Rate, 0.05));
        assert!((limits[2].1 - 0.001).abs() < 1e-12 && limits[3].1 == 0.0);
        assert_eq!(parsed[1].text(), "rate<-5%");
    }

    #[test]
    fn every_problem_is_reported_with_its_remedy() {
        let list = "p99<-10%,rate>+5%,p99>10%,p99>+10,p99.9>+1%,rps<-5%,p99,rate<-x%,";
        let problems = RegressionCondition::parse_list(list).unwrap_err();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 9, "{texts:?}");
        for (text, remedy) in texts.iter().zip([
            "write p99>+10%",
            "write rate<-10%",
            "write p99>+10%",
            "in per cent",
            "p50 and p99 only",
            "'rps' is unknown",
            "write conditions",
            "not a fraction",
            "write conditions",
        ]) {
            assert!(text.contains(remedy), "{remedy}: {text}");
        }
    }
}

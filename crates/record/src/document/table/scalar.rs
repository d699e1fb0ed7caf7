//! Values that are neither tables nor arrays, by the form that their key has.

use toml::de::DeValue;

use super::ValueForm;
use super::values::Value;
use crate::document::text_or_number;
use crate::problem::InvalidValue;
use crate::units::{DurationUnit, parse_duration_ns, parse_fraction, parse_fraction_up_to, parse_size};

/// Reads a value. An error has a reason only if the expected form does not explain it.
pub(super) fn read_scalar(form: ValueForm, value: &DeValue<'_>) -> Result<Value, Option<InvalidValue>> {
    let text = value.as_str();
    // A number may be written as a text, because a parameter may replace it.
    let number = text_or_number(value);
    match form {
        ValueForm::Word(words) => {
            let text = text.filter(|text| words.contains(text)).ok_or(None)?;
            Ok(Value::Text(text.to_owned()))
        }
        ValueForm::Text => Ok(Value::Text(text.ok_or(None)?.to_owned())),
        ValueForm::Count(low, high) => {
            let count = number.and_then(|number| number.replace('_', "").parse().ok());
            let count = count.filter(|count| (low..=high).contains(count));
            Ok(Value::Integer(count.ok_or(None)?))
        }
        ValueForm::Number => {
            let number: Option<f64> = number.and_then(|number| number.parse().ok());
            let number = number.filter(|number| *number > 0.0 && number.is_finite());
            Ok(Value::Decimal(number.ok_or(None)?))
        }
        ValueForm::Plain => Ok(Value::Text(number.ok_or(None)?)),
        ValueForm::Fraction => Ok(Value::Decimal(parse_fraction(&number.ok_or(None)?)?)),
        ValueForm::FractionTo(max) => Ok(Value::Decimal(parse_fraction_up_to(&number.ok_or(None)?, max)?)),
        ValueForm::TimeOr(word) if text == Some(word) => Ok(Value::Text(word.to_owned())),
        ValueForm::Time | ValueForm::TimeOr(_) => {
            let text = text.ok_or(None)?;
            Ok(Value::Integer(parse_duration_ns(text, DurationUnit::Seconds)?))
        }
        ValueForm::Size => Ok(Value::Integer(parse_size(&number.ok_or(None)?)?)),
        ValueForm::Rate => Ok(Value::Integer(text.and_then(parse_link_rate).ok_or(None)?)),
        ValueForm::Cpus => {
            let text = number.ok_or(None)?;
            Ok(Value::Cpus(parse_cpus(&text).ok_or(None)?))
        }
        ValueForm::Flag => Ok(Value::Bool(value.as_bool().ok_or(None)?)),
        ValueForm::List(list) if list.takes_one => read_scalar(list.entry(), value),
        ValueForm::Texts
        | ValueForm::List(_)
        | ValueForm::Table(_)
        | ValueForm::TableList(_)
        | ValueForm::Tables(_)
        | ValueForm::ShortTables(_)
        | ValueForm::Patches(_) => Err(None),
    }
}

/// Parses `50mbit` to bits per second. The prefixes are powers of a thousand, as in tc(8).
fn parse_link_rate(text: &str) -> Option<u64> {
    let text = text.strip_suffix("bit")?;
    let (number, scale) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'm' => (&text[..text.len() - 1], 1e6),
        b'g' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let rate = number.parse::<f64>().ok()? * scale;
    (8.0..1e12).contains(&rate).then_some(rate as u64)
}

/// Parses a list of CPUs: `0,2-3`. There are at most 1024.
pub fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    const CPU_MAX: u32 = 1023;
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_cpus_are_parsed() {
        assert_eq!(parse_link_rate("50mbit"), Some(50_000_000));
        assert_eq!(parse_link_rate("1.5gbit"), Some(1_500_000_000));
        assert_eq!(
            (parse_link_rate("50"), parse_link_rate("bit"), parse_link_rate("1xbit")),
            (None, None, None)
        );
        assert_eq!(parse_cpus("0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!((parse_cpus("3-2"), parse_cpus(""), parse_cpus("0-4294967295")), (None, None, None));
    }
}

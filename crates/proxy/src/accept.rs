//! Choice of a form of a page by the client's `Accept` (RFC 9110 §12.5.1). Pure.

use crate::plan::PageForm;

/// Maximum number of media ranges that are read.
const RANGES_MAX: usize = 64;

/// Qualities that a client gives to the forms, in thousandths, each with the rank of the media range that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedForms([(u16, u8); PageForm::COUNT]);

impl Default for AcceptedForms {
    /// Returns those of a client without `Accept`: all are as good.
    fn default() -> Self {
        Self([(1_000, 0); PageForm::COUNT])
    }
}

impl AcceptedForms {
    /// Reads the field lines of `Accept`. Of a form, the quality is that of the most specific range; a range that is
    /// none, and further ones than the first 64, do not count.
    pub(crate) fn from_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let ranges = lines.flat_map(|line| line.split(|&byte| byte == b',')).take(RANGES_MAX);
        let mut found = [(0, 0_u8); PageForm::COUNT];
        let mut is_given = false;
        for range in ranges {
            let mut parts = range.split(|&byte| byte == b';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            is_given |= !name.is_empty();
            let quality = parts.find_map(quality).unwrap_or(1_000);
            for (form, best) in PageForm::ALL.into_iter().zip(&mut found) {
                let rank = specificity(name, form);
                if rank > best.1 {
                    *best = (quality, rank);
                }
            }
        }
        if is_given { Self(found) } else { Self::default() }
    }

    /// Returns the form to send, of those that there are; of equal qualities, the one that is named most exactly. A client that accepts none of them gets the first one: an
    /// error in another form says more than a 406.
    pub(crate) fn choose(self, is_there: impl Fn(PageForm) -> bool) -> Option<PageForm> {
        let there = PageForm::ALL.into_iter().zip(self.0).filter(|(form, _)| is_there(*form));
        // Of equal ones, the last would be the maximum.
        there.rev().max_by_key(|(_, quality_and_rank)| *quality_and_rank).map(|(form, _)| form)
    }
}

/// Returns 0 if the media range does not include the form, and more the closer it is to it.
fn specificity(range: &[u8], form: PageForm) -> u8 {
    let (own, group): (&[&str], &str) = match form {
        PageForm::Html => (&["text/html", "application/xhtml+xml"], "text/*"),
        PageForm::Json => (&["application/json", "application/problem+json"], "application/*"),
        PageForm::Text => (&["text/plain"], "text/*"),
    };
    match range {
        _ if own.iter().any(|name| range.eq_ignore_ascii_case(name.as_bytes())) => 3,
        _ if range.eq_ignore_ascii_case(group.as_bytes()) => 2,
        b"*/*" => 1,
        _ => 0,
    }
}

/// Reads a weight, `q=0.8`, in thousandths. `None`: another parameter, or no number.
pub(crate) fn quality(parameter: &[u8]) -> Option<u16> {
    let (name, value) = std::str::from_utf8(parameter).ok()?.trim().split_once('=')?;
    let weight: f64 = value.trim().parse().ok()?;
    let is_weight = name.trim_end().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&weight);
    // At most 1,000, so the cast is lossless but for the fraction.
    is_weight.then_some((weight * 1_000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &[&str], there: &[PageForm]) -> Option<PageForm> {
        let forms = AcceptedForms::from_lines(accept.iter().map(|line| line.as_bytes()));
        forms.choose(|form| there.contains(&form))
    }

    #[test]
    fn the_form_with_the_highest_quality_is_sent() {
        use PageForm::{Html, Json, Text};
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        let table: &[(&[&str], &[PageForm], Option<PageForm>)] = &[
            (&[], &PageForm::ALL, Some(Html)),
            (&[], &[Text, Json], Some(Json)),
            (&["*/*"], &PageForm::ALL, Some(Html)),
            (&[browser], &PageForm::ALL, Some(Html)),
            (&[browser], &[Json, Text], Some(Json)),
            (&["application/json"], &PageForm::ALL, Some(Json)),
            (&["application/json, text/plain, */*"], &PageForm::ALL, Some(Json)),
            (&["text/plain"], &PageForm::ALL, Some(Text)),
            (&["text/*;q=0.5, application/json;q=0.4"], &PageForm::ALL, Some(Html)),
            (&["text/html;q=0.1", "text/plain;q=0.2"], &PageForm::ALL, Some(Text)),
            (&["text/html;q=0, */*"], &PageForm::ALL, Some(Json)),
            (&["TEXT/HTML; level=1; Q=0.3, application/*;q=0.2"], &PageForm::ALL, Some(Html)),
            (&["image/png"], &[Json], Some(Json)),
            (&["image/png"], &[], None),
            (&["", " , "], &PageForm::ALL, Some(Html)),
            (&["text/html;q=2, text/plain;q=0.9"], &PageForm::ALL, Some(Html)),
        ];
        for (accept, there, expected) in table {
            assert_eq!(chosen(accept, there), *expected, "{accept:?} {there:?}");
        }
    }

    #[test]
    fn a_long_field_costs_no_more_than_its_first_ranges() {
        let long = "image/png,".repeat(RANGES_MAX) + "application/json";
        assert_eq!(chosen(&[&long], &PageForm::ALL), Some(PageForm::Html));
    }
}

//! Two experiments side by side, as a page.

use super::html::{escape, link, page};
use crate::output::comparison::{Compared, cells, shown};

/// The page.
pub(super) fn side_by_side(compared: &Compared) -> String {
    let mut body = String::from("<p><a href=\"/\">All experiments</a></p>\n<ul>\n");
    for (letter, side) in [("A", &compared.a), ("B", &compared.b)] {
        body.push_str(&format!(
            "<li>{letter}: <a href=\"{}\">{}</a>, {}: {}</li>\n",
            link(&side.path),
            escape(&side.path),
            escape(&side.started_at),
            escape(&side.title)
        ));
    }
    body.push_str("</ul>\n");
    for said in &compared.summary {
        body.push_str(&format!("<p>{}</p>\n", escape(said)));
    }
    for note in &compared.notes {
        body.push_str(&format!("<p class=\"note\">{}</p>\n", escape(note)));
    }
    if !compared.rows.is_empty() {
        body.push_str(&rows(compared));
    }
    body.push_str("<h2>What is not the same</h2>\n");
    if compared.differences.is_empty() {
        body.push_str("<p>Nothing that is recorded.</p>\n");
    } else {
        body.push_str("<table><thead><tr><th></th><th>A</th><th>B</th></tr></thead><tbody>\n");
        for one in &compared.differences {
            body.push_str(&format!(
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                escape(&one.what),
                escape(shown(&one.a)),
                escape(shown(&one.b))
            ));
        }
        body.push_str("</tbody></table>\n");
    }
    page("A and B", None, &body)
}

/// A row for each figure.
fn rows(compared: &Compared) -> String {
    let mut body = String::from(
        "<table><thead><tr><th>Load</th><th>Arm</th><th>Figure</th><th class=\"n\">A</th><th class=\"n\">B\
         </th><th class=\"n\">B/A</th><th class=\"n\">Interval</th><th class=\"n\">p</th><th class=\"n\">\
         P(B better)</th><th>B is</th></tr></thead><tbody>\n",
    );
    for row in &compared.rows {
        let [figure, a, b, ratio, interval, p, better, says] = cells(row).map(|cell| escape(&cell));
        let class = row.outcome.map(|outcome| outcome.word()).unwrap_or_default();
        body.push_str(&format!(
            "<tr><td>{}</td><td>{}</td><td>{figure}</td><td class=\"n\">{a}</td><td class=\"n\">{b}</td>\
             <td class=\"n\">{ratio}</td><td class=\"n\">{interval}</td><td class=\"n\">{p}</td>\
             <td class=\"n\">{better}</td><td class=\"{class}\">{says}</td></tr>\n",
            escape(&row.load),
            escape(&row.arm),
        ));
    }
    body.push_str("</tbody></table>\n");
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::comparison::{Difference, Row, SCHEMA, Side};

    #[test]
    fn nothing_of_a_record_is_markup() {
        let evil = "<script>".to_owned();
        let compared = Compared {
            schema: SCHEMA,
            a: Side { path: evil.clone(), title: evil.clone(), started_at: evil.clone() },
            b: Side::default(),
            summary: vec![evil.clone()],
            rows: vec![Row {
                arm: evil.clone(),
                load: evil.clone(),
                title: evil.clone(),
                ..Row::default()
            }],
            differences: vec![Difference { what: evil.clone(), a: Some(evil.clone()), b: None }],
            notes: vec![evil],
        };
        let page = side_by_side(&compared);
        assert!(!page.contains("<script>"), "{page}");
        assert!(page.contains("(nothing)"), "{page}");
    }
}

//! Tables of figures as text that a spreadsheet reads (RFC 4180), one behind each chart.
//! Not for figures in words, and not for tables that a person reads: those round.

/// Rows of a table that stand in the page at most: what is beyond is in a file beside it.
pub(in crate::report) const ROWS_MAX: usize = 5_000;
/// Rows that are kept at most: no chart has as many.
const ROWS_KEPT_MAX: usize = 200_000;

/// Rows with a name for each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct Figures {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Figures {
    /// An empty table. Names of columns carry their unit: `p99_ns`.
    #[must_use]
    pub(in crate::report) fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Adds a row, as long as the columns are.
    pub(in crate::report) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{:?}", self.columns);
        if self.rows.len() < ROWS_KEPT_MAX {
            self.rows.push(cells);
        }
    }

    /// Whether there is no row.
    #[must_use]
    pub(in crate::report) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows there are.
    #[must_use]
    pub(in crate::report) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The text: a line for the names, one for each row, each ended by CR LF.
    #[must_use]
    pub(in crate::report) fn text(&self) -> String {
        self.first(usize::MAX)
    }

    /// The text with so many rows at most.
    #[must_use]
    pub(in crate::report) fn first(&self, rows_max: usize) -> String {
        let mut out = String::new();
        for cells in std::iter::once(&self.columns).chain(self.rows.iter().take(rows_max)) {
            for (index, cell) in cells.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_cell(&mut out, cell);
            }
            out.push_str("\r\n");
        }
        out
    }
}

/// A number with all its digits; empty where there is none.
#[must_use]
pub(in crate::report) fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(String::new, |value| value.to_string())
}

/// A cell in quotes where it needs them. A text that a spreadsheet would take for a formula gets an
/// apostrophe before it: names come from people.
fn write_cell(out: &mut String, cell: &str) {
    let formula = cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
    let quotes = formula || cell.contains(['"', ',', '\r', '\n']) || cell.trim() != cell;
    if !quotes {
        out.push_str(cell);
        return;
    }
    out.push('"');
    if formula {
        out.push('\'');
    }
    out.push_str(&cell.replace('"', "\"\""));
    out.push('"');
}

/// Reads what [`Figures::text`] wrote: for tests.
#[cfg(test)]
pub(in crate::report) fn parse(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let mut letters = text.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = letters.next() {
        let row = rows.last_mut().unwrap();
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                row.last_mut().unwrap().push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(String::new()),
            '\r' if !quoted => {}
            '\n' if !quoted => rows.push(vec![String::new()]),
            letter => row.last_mut().unwrap().push(letter),
        }
    }
    assert!(!quoted, "{text}");
    assert_eq!(rows.pop(), Some(vec![String::new()]), "the last line is ended");
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut figures = Figures::new(&["arm", "p99_ns"]);
        let odd = ["plain", "a,b", "say \"so\"", "two\nlines", " room ", "", "-1.5"];
        for cell in odd {
            figures.row(vec![cell.to_owned(), number(Some(0.1))]);
        }
        let read = parse(&figures.text());
        assert_eq!(read[0], ["arm", "p99_ns"]);
        for (row, cell) in read[1..].iter().zip(odd) {
            assert_eq!(row, &[cell.to_owned(), "0.1".to_owned()]);
        }
    }

    #[test]
    fn a_name_is_never_a_formula() {
        let mut figures = Figures::new(&["arm"]);
        figures.row(vec!["=HYPERLINK(1)".to_owned()]);
        assert_eq!(parse(&figures.text())[1], ["'=HYPERLINK(1)"]);
    }

    #[test]
    fn there_is_an_end_to_the_rows() {
        let mut figures = Figures::new(&["n"]);
        (0..ROWS_MAX + 7).for_each(|index| figures.row(vec![index.to_string()]));
        assert_eq!(parse(&figures.first(ROWS_MAX)).len(), ROWS_MAX + 1);
        assert_eq!(parse(&figures.text()).len(), figures.len() + 1);
        assert_eq!(figures.len(), ROWS_MAX + 7);
        assert_eq!(number(Some(f64::NAN)), "");
    }
}

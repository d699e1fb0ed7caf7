//! Tables of figures as text for spreadsheets (RFC 4180), one for each chart. They keep all digits;
//! tables for people round their numbers.

/// Maximum number of rows of a table in the page; a file beside the page has the rest.
pub(crate) const ROWS_MAX: usize = 5_000;
/// Maximum number of rows that are kept: no chart has as many.
const ROWS_STORED_MAX: usize = 200_000;

/// Rows, with a name for each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataTable {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl DataTable {
    /// Returns an empty table. Names of columns include their unit: `p99_ns`.
    #[must_use]
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|&column| column.to_owned()).collect(), ..Self::default() }
    }

    /// Adds a row, with a cell for each column.
    pub(crate) fn add_row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{:?}", self.columns);
        if self.rows.len() < ROWS_STORED_MAX {
            self.rows.push(cells);
        }
    }

    /// Returns whether there are no rows.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the number of rows.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the text: a line for the names and one for each row, each ended by CR LF.
    #[must_use]
    pub(crate) fn to_csv(&self) -> String {
        self.first_rows_csv(usize::MAX)
    }

    /// Returns the text with at most `rows_max` rows.
    #[must_use]
    pub(crate) fn first_rows_csv(&self, rows_max: usize) -> String {
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

/// Formats a number with all its digits; empty for `None`.
#[must_use]
pub(crate) fn number(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(String::new, |value| value.to_string())
}

/// Writes a cell, in quotes if needed. A text that a spreadsheet would read as a formula gets an
/// apostrophe in front: names come from people.
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

/// Parses the output of [`DataTable::to_csv`], for tests.
#[cfg(test)]
pub(crate) fn parse(text: &str) -> Vec<Vec<String>> {
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
        let mut data = DataTable::new(&["arm", "p99_ns"]);
        let odd = ["plain", "a,b", "say \"so\"", "two\nlines", " room ", "", "-1.5"];
        for cell in odd {
            data.add_row(vec![cell.to_owned(), number(Some(0.1))]);
        }
        let read = parse(&data.to_csv());
        assert_eq!(read[0], ["arm", "p99_ns"]);
        for (row, cell) in read[1..].iter().zip(odd) {
            assert_eq!(row, &[cell.to_owned(), "0.1".to_owned()]);
        }
    }

    #[test]
    fn a_name_is_never_a_formula() {
        let mut data = DataTable::new(&["arm"]);
        data.add_row(vec!["=HYPERLINK(1)".to_owned()]);
        assert_eq!(parse(&data.to_csv())[1], ["'=HYPERLINK(1)"]);
    }

    #[test]
    fn there_is_an_end_to_the_rows() {
        let mut data = DataTable::new(&["n"]);
        (0..ROWS_MAX + 7).for_each(|index| data.add_row(vec![index.to_string()]));
        assert_eq!(parse(&data.first_rows_csv(ROWS_MAX)).len(), ROWS_MAX + 1);
        assert_eq!(parse(&data.to_csv()).len(), data.len() + 1);
        assert_eq!(data.len(), ROWS_MAX + 7);
        assert_eq!(number(Some(f64::NAN)), "");
    }
}

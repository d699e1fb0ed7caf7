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
    /// Returns an empty table. `columns` are the names of its columns, separated by spaces; names
    /// include their unit: `p99_ns`.
    pub(crate) fn new(columns: &str) -> Self {
        Self { columns: columns.split_whitespace().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Adds columns whose names depend on the experiment.
    pub(crate) fn with_columns(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns.extend(names.into_iter().map(Into::into));
        self
    }

    pub(crate) fn add(&mut self, cells: &[&dyn Datum]) {
        self.add_row(self::cells(cells));
    }

    pub(crate) fn add_row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{:?}", self.columns);
        if self.rows.len() < ROWS_STORED_MAX {
            self.rows.push(cells);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the text: a line for the names and one for each row, each ended by CR LF.
    pub(crate) fn to_csv(&self) -> String {
        self.first_rows_csv(usize::MAX)
    }

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

/// A value of a cell. Numbers keep all their digits; a missing value, and one that is not finite, is
/// empty.
pub(crate) trait Datum {
    fn text(&self) -> String;
}

macro_rules! displayed_data {
    ($($kind:ty),*) => {
        $(impl Datum for $kind {
            fn text(&self) -> String {
                self.to_string()
            }
        })*
    };
}

displayed_data!(str, String, bool, u16, u32, u64, usize);

impl Datum for f64 {
    fn text(&self) -> String {
        if self.is_finite() { self.to_string() } else { String::new() }
    }
}

impl<T: Datum> Datum for Option<T> {
    fn text(&self) -> String {
        self.as_ref().map_or_else(String::new, T::text)
    }
}

impl<T: Datum + ?Sized> Datum for &T {
    fn text(&self) -> String {
        T::text(self)
    }
}

pub(crate) fn cells(cells: &[&dyn Datum]) -> Vec<String> {
    cells.iter().map(|cell| cell.text()).collect()
}

/// Rounds a figure of a long table to six digits: more would only make the page larger.
pub(crate) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(f64::NAN)
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
        let mut data = DataTable::new("arm p99_ns");
        let odd = ["plain", "a,b", "say \"so\"", "two\nlines", " room ", "", "-1.5"];
        for cell in odd {
            data.add(&[&cell, &0.1]);
        }
        let read = parse(&data.to_csv());
        assert_eq!(read[0], ["arm", "p99_ns"]);
        for (row, cell) in read[1..].iter().zip(odd) {
            assert_eq!(row, &[cell.to_owned(), "0.1".to_owned()]);
        }
    }

    #[test]
    fn a_name_is_never_a_formula() {
        let mut data = DataTable::new("arm");
        data.add(&[&"=HYPERLINK(1)"]);
        assert_eq!(parse(&data.to_csv())[1], ["'=HYPERLINK(1)"]);
    }

    #[test]
    fn there_is_an_end_to_the_rows() {
        let mut data = DataTable::new("n");
        (0..ROWS_MAX + 7).for_each(|index| data.add(&[&index]));
        assert_eq!(parse(&data.first_rows_csv(ROWS_MAX)).len(), ROWS_MAX + 1);
        assert_eq!(parse(&data.to_csv()).len(), data.len() + 1);
        assert_eq!(data.len(), ROWS_MAX + 7);
        assert_eq!(f64::NAN.text(), "");
    }

    #[test]
    fn a_figure_has_six_digits() {
        let text = [1.0 / 3.0, 0.1 + 0.2, 123_456_789.0, 0.0, f64::NAN].map(|value| six_digits(value).text());
        assert_eq!(text, ["0.333333", "0.3", "123457000", "0", ""]);
    }
}

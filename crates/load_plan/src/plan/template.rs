//! Templates in the target, the header fields and the body of a request: text with `{{counter}}`,
//! `{{random:1-9}}`, `{{csv:COLUMN}}` and others, rendered for each request.

use std::ops::RangeInclusive;
use std::sync::Arc;

use record::invalid_value;
use record::problem::InvalidValue;
use record::units::format_plural;

use super::session::is_name_byte;

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(Vec<u8>),
    Counter(u64),
    Random(RangeInclusive<u64>),
    Hex(usize),
    /// Random UUID, version 4.
    Uuid,
    Connection,
    Csv(usize),
    Captured(usize),
}

/// Text with values that differ between requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<TemplatePart>,
}

/// Names that a template may use.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateNames<'a> {
    pub columns: &'a [String],
    pub captures: &'a [String],
}

/// Position of a template, which decides the bytes that a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePosition {
    /// Target of a request: other bytes are percent-encoded.
    Target,
    /// Value of a header field: control characters are removed.
    Field,
    Body,
}

pub trait TemplateValues {
    /// Returns a captured value; empty before the first capture.
    fn captured(&self, index: usize) -> &[u8];
    fn random(&mut self) -> &mut fastrand::Rng;
    fn connection(&self) -> u64;
}

/// Number of a request, and its row of the CSV file.
#[derive(Clone, Copy, Debug)]
pub struct TemplateRequest<'a> {
    pub number: u64,
    pub table: Option<&'a CsvTable>,
}

const HEX_DIGITS_MAX: u64 = 4096;
/// Names of values, with the form of their argument.
const NAMES: &str = "counter, counter:START, random, random:MIN-MAX, hex:DIGITS, uuid, connection, csv:COLUMN or \
                     value:NAME";

impl Template {
    /// Parses a text. Bytes that are not UTF-8, such as an image, have no placeholders.
    ///
    /// # Errors
    /// Reason why a name in braces is unknown.
    pub fn parse(text: &[u8], names: TemplateNames<'_>) -> Result<Self, InvalidValue> {
        if std::str::from_utf8(text).is_err() {
            return Ok(Self { parts: vec![TemplatePart::Literal(text.to_vec())] });
        }
        let (mut parts, mut literal, mut rest) = (Vec::new(), Vec::new(), text);
        while let Some(at) = memchr::memmem::find(rest, b"{{") {
            literal.extend_from_slice(&rest[..at]);
            rest = &rest[at + 2..];
            // Doubled, they stand for themselves.
            if let Some(after) = rest.strip_prefix(b"{{") {
                literal.extend_from_slice(b"{{");
                rest = after;
                continue;
            }
            let end = memchr::memmem::find(rest, b"}}")
                .ok_or_else(|| invalid_value!("'{{' without '}}' (write '{{{{' for two braces)"))?;
            let name =
                std::str::from_utf8(&rest[..end]).map_err(|_| invalid_value!("a name that is not UTF-8"))?;
            if !literal.is_empty() {
                parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(parse_part(name.trim(), names)?);
            rest = &rest[end + 2..];
        }
        literal.extend_from_slice(rest);
        if !literal.is_empty() {
            parts.push(TemplatePart::Literal(literal));
        }
        Ok(Self { parts })
    }

    /// Returns the text if it is the same for every request.
    #[inline]
    pub fn fixed(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(b""),
            [TemplatePart::Literal(text)] => Some(text),
            _ => None,
        }
    }

    pub fn render(
        &self,
        out: &mut Vec<u8>,
        position: TemplatePosition,
        request: TemplateRequest<'_>,
        values: &mut impl TemplateValues,
    ) {
        let mut digits = itoa::Buffer::new();
        for part in &self.parts {
            match part {
                TemplatePart::Literal(text) => out.extend_from_slice(text),
                TemplatePart::Counter(start) => {
                    out.extend_from_slice(digits.format(start.wrapping_add(request.number)).as_bytes());
                }
                TemplatePart::Random(range) => {
                    let number = values.random().u64(range.clone());
                    out.extend_from_slice(digits.format(number).as_bytes());
                }
                TemplatePart::Hex(count) => write_hex(out, *count, values.random()),
                TemplatePart::Uuid => write_uuid(out, values.random()),
                TemplatePart::Connection => {
                    out.extend_from_slice(digits.format(values.connection()).as_bytes());
                }
                TemplatePart::Csv(column) => {
                    if let Some(table) = request.table {
                        write_value(out, position, table.cell(request.number, *column));
                    }
                }
                TemplatePart::Captured(index) => write_value(out, position, values.captured(*index)),
            }
        }
    }
}

fn parse_part(text: &str, names: TemplateNames<'_>) -> Result<TemplatePart, InvalidValue> {
    let (name, argument) = match text.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (text, None),
    };
    let wrong =
        || invalid_value!("'{{{{{text}}}}}' is unknown (write {NAMES}; '{{{{{{{{' stands for two braces)");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let index_of = |names: &[String], kind: &str, wanted: &str| {
        names.iter().position(|name| name == wanted).ok_or_else(|| match names.is_empty() {
            true => invalid_value!("'{{{{{text}}}}}': there is no {kind}"),
            false => invalid_value!("'{{{{{text}}}}}': no {kind} '{wanted}' (known: {})", names.join(", ")),
        })
    };
    match (name, argument) {
        ("counter", None) => Ok(TemplatePart::Counter(0)),
        ("counter", Some(start)) => number(start).map(TemplatePart::Counter),
        ("random", None) => Ok(TemplatePart::Random(0..=u64::from(u32::MAX))),
        ("random", Some(range)) => {
            let (min, max) = range.split_once('-').ok_or_else(wrong)?;
            let (min, max) = (number(min)?, number(max)?);
            if min > max { Err(wrong()) } else { Ok(TemplatePart::Random(min..=max)) }
        }
        ("hex", Some(count)) => match number(count)? {
            count if (1..=HEX_DIGITS_MAX).contains(&count) => Ok(TemplatePart::Hex(count as usize)),
            count => {
                Err(invalid_value!("'{{{{{text}}}}}': {count} is not within 1 to {HEX_DIGITS_MAX} digits"))
            }
        },
        ("uuid", None) => Ok(TemplatePart::Uuid),
        ("connection", None) => Ok(TemplatePart::Connection),
        ("csv", Some(column)) => index_of(names.columns, "column (--values)", column).map(TemplatePart::Csv),
        ("value", Some(name)) if name.bytes().all(is_name_byte) => {
            index_of(names.captures, "value (--capture)", name).map(TemplatePart::Captured)
        }
        _ => Err(wrong()),
    }
}

#[inline]
fn write_hex(out: &mut Vec<u8>, count: usize, random: &mut fastrand::Rng) {
    let (mut left, mut bits) = (count, 0);
    while left > 0 {
        if (count - left).is_multiple_of(16) {
            bits = random.u64(..);
        }
        out.push(b"0123456789abcdef"[(bits & 15) as usize]);
        bits >>= 4;
        left -= 1;
    }
}

/// Writes a random UUID (RFC 9562 §5.4).
#[inline]
fn write_uuid(out: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let start = out.len();
    for (index, count) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            out.push(b'-');
        }
        write_hex(out, count, random);
    }
    out[start + 14] = b'4';
    out[start + 19] = b"89ab"[random.usize(..4)];
}

/// Writes a value that may have any byte.
#[inline]
fn write_value(out: &mut Vec<u8>, position: TemplatePosition, value: &[u8]) {
    match position {
        TemplatePosition::Body => out.extend_from_slice(value),
        TemplatePosition::Field => {
            out.extend(value.iter().filter(|byte| **byte == b'\t' || (**byte >= b' ' && **byte != 0x7f)));
        }
        TemplatePosition::Target => {
            for &byte in value {
                if byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte) {
                    out.push(byte);
                } else {
                    let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
                    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
                }
            }
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvTable {
    columns: Vec<String>,
    /// Cells, row by row.
    cells: Vec<Box<[u8]>>,
}

const CELLS_MAX: usize = 10_000_000;

impl CsvTable {
    /// Parses a CSV file (RFC 4180) with the names of its columns in the first line.
    ///
    /// # Errors
    /// Line, column and reason of the first error.
    pub fn parse(text: &str) -> Result<Arc<Self>, (usize, usize, String)> {
        let (mut table, mut line_number) = (Self::default(), 0);
        let mut rest = text;
        while !rest.is_empty() {
            line_number += 1;
            let (row, lines, after) = parse_row(rest).map_err(|(at, why)| (line_number, at, why))?;
            rest = after;
            if row.len() == 1 && row[0].is_empty() {
                line_number += lines - 1;
                continue;
            }
            if table.columns.is_empty() {
                table.columns = row.iter().map(|name| name.trim().to_owned()).collect();
            } else if row.len() != table.columns.len() {
                let why = format!(
                    "{}, but {}",
                    format_plural(row.len() as u64, "cell"),
                    format_plural(table.columns.len() as u64, "column")
                );
                return Err((line_number, 1, why));
            } else {
                table.cells.extend(row.into_iter().map(|cell| cell.into_bytes().into_boxed_slice()));
            }
            if table.cells.len() > CELLS_MAX {
                return Err((line_number, 1, format!("more than {CELLS_MAX} cells")));
            }
            line_number += lines - 1;
        }
        match table.cells.is_empty() {
            true => Err((1, 1, "no row (the first line has the names of the columns)".to_owned())),
            false => Ok(Arc::new(table)),
        }
    }

    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    #[inline]
    pub fn rows(&self) -> usize {
        self.cells.len() / self.columns.len().max(1)
    }

    /// Returns a cell of the row that belongs to request `number`: rows are used in turn.
    #[inline]
    fn cell(&self, number: u64, column: usize) -> &[u8] {
        let row = (number % self.rows().max(1) as u64) as usize;
        &self.cells[row * self.columns.len() + column]
    }
}

/// Parses a row. Returns its cells, the number of its lines and the rest, or the column of an error.
fn parse_row(text: &str) -> Result<(Vec<String>, usize, &str), (usize, String)> {
    let (mut cells, mut rest, mut lines) = (Vec::new(), text, 1);
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (mut cell, mut inner) = (String::new(), quoted);
            loop {
                let column = text.len() - rest.len() + 1;
                let end = inner.find('"').ok_or_else(|| (column, "a quote that does not end".to_owned()))?;
                cell.push_str(&inner[..end]);
                inner = &inner[end + 1..];
                match inner.strip_prefix('"') {
                    Some(after) => {
                        cell.push('"');
                        inner = after;
                    }
                    None => break,
                }
            }
            lines += cell.matches('\n').count();
            cells.push(cell);
            rest = inner;
        } else {
            let end = rest.find([',', '\n']).unwrap_or(rest.len());
            cells.push(rest[..end].trim_end_matches('\r').to_owned());
            rest = &rest[end..];
        }
        rest = rest.strip_prefix('\r').unwrap_or(rest);
        match rest.as_bytes().first() {
            Some(b',') => rest = &rest[1..],
            Some(b'\n') => return Ok((cells, lines, &rest[1..])),
            None => return Ok((cells, lines, rest)),
            Some(_) => return Err((text.len() - rest.len() + 1, "text after a quote".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Values(fastrand::Rng);

    impl TemplateValues for Values {
        fn captured(&self, _index: usize) -> &[u8] {
            b"a b\r\n"
        }
        fn random(&mut self) -> &mut fastrand::Rng {
            &mut self.0
        }
        fn connection(&self) -> u64 {
            3
        }
    }

    fn render(text: &str, position: TemplatePosition, number: u64) -> String {
        let table = CsvTable::parse("id,path\n1,/a\n\"2\",\"/b \"\"x\"\"\"\n").unwrap();
        let names = ["t".to_owned()];
        let template =
            Template::parse(text.as_bytes(), TemplateNames { columns: table.columns(), captures: &names })
                .unwrap();
        let mut out = Vec::new();
        let request = TemplateRequest { number, table: Some(&table) };
        template.render(&mut out, position, request, &mut Values(fastrand::Rng::with_seed(1)));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_rendered_for_their_position() {
        let body = |text| render(text, TemplatePosition::Body, 7);
        assert_eq!(body("{\"a\":{\"b\":{{counter}}}}"), "{\"a\":{\"b\":7}}");
        assert_eq!(body("{{counter:100}}-{{connection}}-{{{{x}}"), "107-3-{{x}}");
        assert_eq!(body("{{csv:id}}{{csv:path}}"), "2/b \"x\"");
        assert_eq!(render("{{csv:path}}", TemplatePosition::Target, 1), "/b%20%22x%22");
        assert_eq!(render("{{value:t}}|", TemplatePosition::Field, 0), "a b|");
        let random: u64 = body("{{random:5-6}}").parse().unwrap();
        assert!((5..=6).contains(&random));
        let uuid = body("{{uuid}}");
        assert!(uuid.len() == 36 && uuid.as_bytes()[14] == b'4', "{uuid}");
        assert_eq!(body("{{hex:20}}").len(), 20);
    }

    #[test]
    fn binary_content_has_no_placeholders() {
        let image = b"\x89PNG {{ \xff {{counter}}";
        assert_eq!(Template::parse(image, TemplateNames::default()).unwrap().fixed(), Some(&image[..]));
    }

    #[test]
    fn unknown_names_and_open_braces_are_rejected() {
        let parse = |text: &str| Template::parse(text.as_bytes(), TemplateNames::default()).unwrap_err();
        for text in [
            "{{x}}",
            "{{random:3}}",
            "{{random:9-1}}",
            "{{hex:0}}",
            "{{csv:a}}",
            "{{value:a}}",
            "{{",
            "{{counter",
        ] {
            assert!(!parse(text).to_string().is_empty(), "{text}");
        }
        assert!(parse("{{csv:a}}").to_string().contains("there is no column (--values)"));
    }

    #[test]
    fn wrong_csv_is_rejected_with_its_position() {
        let error = |text: &str| CsvTable::parse(text).unwrap_err();
        assert_eq!(error("a,b\n1\n").0, 2);
        assert_eq!(error("a\n\"1\n2").2, "a quote that does not end");
        assert_eq!((error("").0, error("a\n").0), (1, 1));
        assert_eq!(error("a\n\"1\"x").1, 4);
    }
}

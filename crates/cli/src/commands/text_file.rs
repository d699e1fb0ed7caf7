//! Text files that a user names on the command line: reads them, and reports problems with their
//! position.

use record::problem::InputProblem;

use crate::input_file::without_byte_order_mark;

pub(super) fn read_text_file(path: &str) -> Result<String, InputProblem> {
    let bytes =
        std::fs::read(path).map_err(|error| InputProblem::new(path, format!("cannot be read: {error}")))?;
    decode_text(path, bytes)
}

/// Decodes the bytes of a text file; `name` names the file in the problem.
pub(super) fn decode_text(name: &str, bytes: Vec<u8>) -> Result<String, InputProblem> {
    String::from_utf8(bytes).map(without_byte_order_mark).map_err(|error| {
        let valid_text = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let valid_text = String::from_utf8_lossy(valid_text);
        let (line, last) = (valid_text.matches('\n').count() + 1, valid_text.rsplit('\n').next());
        let column = last.unwrap_or_default().chars().count() + 1;
        InputProblem::new(format!("{name}:{line}:{column}"), "not a text file (invalid UTF-8)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_of_invalid_bytes_is_reported() {
        assert_eq!(decode_text("a", b"x\n".to_vec()), Ok("x\n".to_owned()));
        let problem = decode_text("a.toml", b"x = 1\n\xc3\xa4 = \"\xff\"\n".to_vec()).unwrap_err();
        assert_eq!(problem.location, "a.toml:2:6");
    }
}

//! File of requests in the format of vegeta's targets: a line with method and URL, then the fields, then
//! a line `@FILE` with the body; an empty line separates requests. Pure: the caller reads files.

use std::io;

use record::problem::InputProblem;

use super::requests::{RequestText, parse_weight};

/// Parses a file of requests; `read_body` reads the file of a body.
///
/// # Errors
/// Every problem, with line and column.
pub fn parse_targets(
    name: &str,
    text: &str,
    read_body: &dyn Fn(&str) -> io::Result<Vec<u8>>,
) -> Result<Vec<RequestText>, Vec<InputProblem>> {
    let (mut requests, mut problems) = (Vec::<RequestText>::new(), Vec::new());
    let (mut is_open, mut weight) = (false, 1);
    for (number, line) in (1..).zip(text.lines()) {
        let column = line.len() - line.trim_start().len() + 1;
        let location = format!("{name}:{number}:{column}");
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            if let Some(text) = comment.trim().strip_prefix("weight ") {
                match parse_weight(text.trim()) {
                    Ok(parsed) => weight = parsed,
                    Err(why) => problems.push(InputProblem::new(location, why)),
                }
            }
            continue;
        }
        if line.is_empty() {
            is_open = false;
            continue;
        }
        let request_line = line.split_once(' ').filter(|(_, rest)| rest.trim_start().contains("://"));
        match (request_line, requests.last_mut().filter(|_| is_open)) {
            (Some((method, url)), _) if method.bytes().all(|byte| byte.is_ascii_uppercase()) => {
                let (method, url) = (Some(method.to_owned()), url.trim().to_owned());
                requests.push(RequestText { location, method, url, weight, ..RequestText::default() });
                (is_open, weight) = (true, 1);
            }
            (_, Some(request)) => match line.strip_prefix('@') {
                Some(path) => match read_body(path) {
                    Ok(body) => request.body = Some(body),
                    Err(why) => problems.push(InputProblem::new(location, format!("{path}: {why}"))),
                },
                None if line.contains(':') => request.headers.push(line.to_owned()),
                None => problems.push(InputProblem::new(
                    location,
                    format!("'{line}' is neither a field nor a body (write Name: value or @FILE)"),
                )),
            },
            _ => problems.push(InputProblem::new(
                location,
                format!("'{line}' is no request (write METHOD http://host:port/path)"),
            )),
        }
    }
    if requests.is_empty() && problems.is_empty() {
        problems.push(InputProblem::new(format!("{name}:1:1"), "no request"));
    }
    if problems.is_empty() { Ok(requests) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_fields_bodies_and_weights() {
        let text = "# weight 3\nGET http://a/1\nX-A: 1\n\nPOST http://a/2\n  @body\nGET http://a/3\n";
        let read = |path: &str| if path == "body" { Ok(b"hi".to_vec()) } else { Err(io::Error::other("no")) };
        let requests = parse_targets("t", text, &read).unwrap();
        let shown: Vec<_> = requests
            .iter()
            .map(|request| {
                (
                    request.url.as_str(),
                    request.weight,
                    request.headers.len(),
                    request.body.as_deref(),
                    request.location.as_str(),
                )
            })
            .collect();
        let expected = [
            ("http://a/1", 3, 1, None, "t:2:1"),
            ("http://a/2", 1, 0, Some(&b"hi"[..]), "t:5:1"),
            ("http://a/3", 1, 0, None, "t:7:1"),
        ];
        assert_eq!(shown, expected);
        let wrong = "X: 1\nGET http://a/\nnonsense\n@missing\n# weight 0\n";
        let problems = parse_targets("t", wrong, &read).unwrap_err();
        let locations: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
        assert_eq!(locations, ["t:1:1", "t:3:1", "t:4:1", "t:5:1"]);
    }
}

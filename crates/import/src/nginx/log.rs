//! `log_format` of nginx as a text with values of weir.

use crate::draft::is_field_name;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogFormat {
    pub(super) text: String,
    pub(super) is_json: bool,
}

/// A format as a text with values.
pub(super) struct Converted {
    pub(super) text: String,
    /// Variables that weir does not have.
    pub(super) unknown: Vec<String>,
}

/// Variables with a value of weir.
const VARIABLES: [(&str, &str); 26] = [
    ("remote_addr", "{source}"),
    ("remote_port", "{source-port}"),
    // Without authentication there is none.
    ("remote_user", "-"),
    ("time_local", "{time.clf}"),
    ("request", "{method} {target} {protocol}"),
    ("request_method", "{method}"),
    ("request_uri", "{target}"),
    ("uri", "{path}"),
    ("document_uri", "{path}"),
    ("status", "{status}"),
    ("body_bytes_sent", "{bytes.content}"),
    ("bytes_sent", "{bytes.out}"),
    ("request_length", "{bytes.in}"),
    ("request_time", "{duration.total.s}"),
    ("upstream_connect_time", "{duration.connect.s}"),
    ("upstream_response_time", "{duration.server.s}"),
    ("upstream_addr", "{server}"),
    ("host", "{host}"),
    ("scheme", "{scheme}"),
    ("server_protocol", "{protocol}"),
    ("ssl_protocol", "{tls.version}"),
    ("ssl_cipher", "{tls.cipher}"),
    ("ssl_server_name", "{tls.sni}"),
    ("request_id", "{request-id}"),
    ("pipe", "."),
    ("proxy_protocol_addr", "{source}"),
];

/// Families of variables: the name behind the prefix is one of weir.
const FAMILIES: [(&str, &str); 3] = [("http_", "header"), ("cookie_", "cookie"), ("arg_", "query")];

impl LogFormat {
    /// Converts the text; `None`: weir cannot have it. `own` returns the values of variables of the config.
    pub(super) fn convert(&self, own: &mut dyn FnMut(&str) -> Option<String>) -> Option<Converted> {
        let mut converted = Converted { text: String::new(), unknown: Vec::new() };
        let mut rest = self.text.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            push_literal(before, &mut converted.text);
            let (name, after) = super::variables::split_name(after)?;
            rest = after;
            match own(name).or_else(|| value_of(name)) {
                Some(value) => converted.text.push_str(&value),
                None => {
                    converted.text.push('-');
                    converted.unknown.push(format!("${name}"));
                }
            }
        }
        push_literal(rest, &mut converted.text);
        let has_value = converted.text.replace("{{", "").contains('{');
        let is_valid = !converted.text.chars().any(char::is_control) && converted.text.len() <= 4_096;
        (has_value && is_valid).then_some(converted)
    }
}

fn push_literal(literal: &str, text: &mut String) {
    text.push_str(&literal.replace('{', "{{").replace('}', "}}"));
}

fn value_of(name: &str) -> Option<String> {
    if let Some((_, value)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Some((*value).to_owned());
    }
    FAMILIES.iter().find_map(|(prefix, family)| {
        let own = name.strip_prefix(prefix)?;
        let own =
            if *family == "header" { own.replace('_', "-").to_ascii_lowercase() } else { own.to_owned() };
        is_field_name(&own).then(|| format!("{{{family}.{own}}}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_becomes_a_text_with_values() {
        let format = |text: &str| {
            let converted = LogFormat { text: text.to_owned(), is_json: false }.convert(&mut |_| None)?;
            Some((converted.text, converted.unknown))
        };
        let main = "$remote_addr - $remote_user [$time_local] \"$request\" $status \"$http_user_agent\"";
        let expected =
            "{source} - - [{time.clf}] \"{method} {target} {protocol}\" {status} \"{header.user-agent}\"";
        assert_eq!(format(main), Some((expected.to_owned(), Vec::new())));
        let (text, unknown) = format("{\"a\":\"${cookie_user}\",\"b\":$msec}").unwrap();
        assert_eq!(
            (text.as_str(), unknown),
            ("{{\"a\":\"{cookie.user}\",\"b\":-}}", vec!["$msec".to_owned()])
        );
        assert_eq!((format("no value {}"), format("$status\n"), format("${status")), (None, None, None));
    }
}

//! Stick tables: clients that are kept at their servers by a text of the request.

use std::rc::Rc;

use super::acl::{NoEquivalent, no_equivalent, split_fetch};
use super::lexer::Line;
use super::settings::{Proxy, Set, milliseconds};
use super::table::COUNTERS;
use crate::document::{Section, Value};
use crate::draft::{Draft, is_field_name, is_hidden, time_value};
use crate::left::Kind;

/// Lines `stick-table` and `stick` of a section.
#[derive(Clone, Debug, Default)]
pub(super) struct StickLines {
    /// Words behind `stick-table`.
    pub(super) table: Option<Set<Vec<String>>>,
    /// Words behind `stick`.
    rules: Vec<Set<Vec<String>>>,
}

/// Longest time for which weir remembers a session.
const EXPIRE_MS_MAX: u64 = 24 * 3_600_000;
/// Maximum number of sessions that weir remembers.
const ENTRIES_MAX: u64 = 10_000_000;

impl StickLines {
    pub(super) fn add_rule(&mut self, line: &Line) {
        self.rules.push((line.rest(1).to_vec(), Rc::clone(&line.origin)));
    }

    /// Reports what has no effect without servers.
    pub(super) fn report_unused(&self, draft: &mut Draft<'_>) {
        if let Some((_, origin)) = &self.table {
            draft.leave(Kind::NotSupported, origin, COUNTERS);
        }
        for (_, origin) in &self.rules {
            draft.leave(Kind::NotSupported, origin, "a section without servers keeps no clients at them");
        }
    }

    /// Returns the text by which clients are known, with the words of its table.
    fn text(&self, own_name: &str) -> Result<(&'static str, String, &[String]), NoEquivalent> {
        let words: Vec<Vec<&str>> =
            self.rules.iter().map(|(words, _)| words.iter().map(String::as_str).collect()).collect();
        let rest = match &words[..] {
            [rule] if rule.first() == Some(&"on") => &rule[1..],
            [match_rule, store_rule]
                if match_rule.first() == Some(&"match")
                    && store_rule.first() == Some(&"store-request")
                    && match_rule[1..] == store_rule[1..] =>
            {
                &match_rule[1..]
            }
            _ => {
                return no_equivalent(
                    "weir remembers the server of the first request with one text (`stick on`): it takes no text from \
                     responses, and has no second text",
                );
            }
        };
        match rest {
            [_] => {}
            [_, "table", name] if *name == own_name => {}
            [_, "table", ..] => return no_equivalent("the table of another section: a pool has its own"),
            _ => return no_equivalent("a condition of `stick`: each request with the text is kept"),
        }
        let Some((table, _)) = &self.table else { return no_equivalent("there is no stick-table here") };
        let (fetch, converters) = split_fetch(rest[0]);
        if let Some(converter) = converters.first() {
            return no_equivalent(format!(
                "the converter '{converter}' of a text by which clients are known"
            ));
        }
        let (name, argument) = match fetch.split_once('(') {
            Some((name, rest)) => (name, rest.trim_end_matches(')')),
            None => (fetch, ""),
        };
        let field = argument.to_ascii_lowercase();
        let (prefix, text) = match name {
            "src" if argument.is_empty() => ("source", String::new()),
            "path" if argument.is_empty() => ("path", String::new()),
            "hdr" | "req.hdr" | "req.fhdr" if is_field_name(&field) && !is_hidden(&field) => {
                ("header.", field)
            }
            "cook" | "req.cook" | "cookie" if is_field_name(argument) => ("cookie.", argument.to_owned()),
            "url_param" | "urlp" if is_field_name(argument) => ("query.", argument.to_owned()),
            _ => return no_equivalent(format!("'{fetch}' as the text by which clients are known")),
        };
        Ok((prefix, text, table))
    }
}

/// Writes the keys of a pool.
pub(super) fn write(proxy: &Proxy, is_tcp: bool, section: &mut Section, draft: &mut Draft<'_>) {
    let Some((_, origin)) = proxy.stick.rules.last() else {
        return proxy.stick.report_unused(draft);
    };
    let reason = if is_tcp {
        "a pool of mode tcp keeps clients by `balance source`, without a table"
    } else if section.has("sticky") {
        "the pool keeps its clients by a cookie already"
    } else if section.has("hash") {
        "a pool that chooses servers by a hash keeps its clients without a table"
    } else {
        ""
    };
    if !reason.is_empty() {
        return draft.leave(Kind::NotSupported, origin, reason);
    }
    let (prefix, text, words) = match proxy.stick.text(&proxy.name) {
        Ok(found) => found,
        Err(reason) => return draft.leave(Kind::NotSupported, origin, reason.to_string()),
    };
    let mut origins: Vec<_> = proxy.stick.rules.iter().map(|(_, origin)| Rc::clone(origin)).collect();
    origins.extend(proxy.stick.table.iter().map(|(_, origin)| Rc::clone(origin)));
    match table_keys(words, prefix == "source", origins.last().unwrap_or(origin), draft) {
        Ok(keys) => {
            section.set_in("sticky", "on", Value::text(format!("{prefix}{text}")), &origins);
            keys.into_iter().for_each(|(key, value)| section.set_in("sticky", key, value, &[]));
        }
        Err(reason) => draft.leave(Kind::NotSupported, origin, reason.to_string()),
    }
}

/// Returns the keys of a table from the words behind `stick-table`.
fn table_keys(
    words: &[String],
    is_source: bool,
    origin: &Rc<crate::document::Origin>,
    draft: &mut Draft<'_>,
) -> Result<Vec<(&'static str, Value)>, NoEquivalent> {
    let (mut size, mut expire) = (None, None);
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if word == "nopurge" {
            draft.leave(
                Kind::Differs,
                origin,
                "a full table forgets the session that was unused for longest",
            );
            continue;
        }
        let value = words.next().unwrap_or_default();
        match word {
            "type" => match (value, is_source) {
                ("ip" | "ipv6", true) => {}
                ("string" | "binary", _) => {
                    // The number behind `len` is a word of its own.
                    if words.next_if_eq(&"len").is_some() {
                        words.next();
                    }
                    if !is_source {
                        let text = "weir compares complete texts, HAProxy the first ones of `len` bytes";
                        draft.leave(Kind::Differs, origin, text);
                    }
                }
                _ => return no_equivalent(format!("a table of the type '{value}' for this text")),
            },
            "size" => size = number(value),
            "expire" => expire = milliseconds(value),
            "peers" => {
                let text =
                    "the table is not shared with other proxies: a hash of the text keeps clients everywhere";
                draft.leave(Kind::NotSupported, origin, text);
            }
            "store" => draft.leave(Kind::NotSupported, origin, COUNTERS),
            other => draft.leave(Kind::NotSupported, origin, format!("'{other}' of a table")),
        }
    }
    let entries = size.unwrap_or(ENTRIES_MAX).clamp(1, ENTRIES_MAX);
    if size.is_none_or(|size| size > ENTRIES_MAX) {
        draft.leave(Kind::Differs, origin, "a table has at most 10 million entries");
    }
    if expire.is_none_or(|expire| expire > EXPIRE_MS_MAX) {
        draft.leave(Kind::Differs, origin, "a session is forgotten after a day without a request");
    }
    let expire = time_value(expire.unwrap_or(EXPIRE_MS_MAX));
    Ok(vec![("entries-max", Value::Number(entries)), ("expire", expire)])
}

/// Returns a number with `k`, `m` or `g`, which are powers of 1024.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[end..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(factor)
}

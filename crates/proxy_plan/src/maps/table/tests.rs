//! Tests of the tables: each kind of match against a search through all entries.

use std::collections::BTreeMap;

use super::*;

const KINDS: [MatchKind; 5] =
    [MatchKind::Exact, MatchKind::Domain, MatchKind::Prefix, MatchKind::PathPrefix, MatchKind::Suffix];

fn build(form: TableForm, entries: &[(&str, &str)]) -> Table {
    let mut builder = TableBuilder::new(form);
    for (key, value) in entries {
        builder.add(key, Some(value.as_bytes())).unwrap();
    }
    builder.build().unwrap_or_else(|conflicts| panic!("{conflicts:?}"))
}

fn text_of(found: Option<Match<'_>>) -> Option<String> {
    Some(String::from_utf8(found?.value?.to_vec()).unwrap())
}

/// Returns whether a key matches a text, by the definition of its kind.
fn matches(kind: MatchKind, key: &str, text: &str) -> bool {
    match kind {
        MatchKind::Exact => key == text,
        MatchKind::Domain => match key.strip_prefix("*.") {
            Some(above) => text.ends_with(&format!(".{above}")) && text.len() > above.len() + 1,
            None => key == text || text.ends_with(&format!(".{key}")) && text.len() > key.len() + 1,
        },
        MatchKind::Prefix => text.starts_with(key),
        MatchKind::PathPrefix => crate::uri::is_below(text, key),
        MatchKind::Suffix => text.ends_with(key),
        MatchKind::Network | MatchKind::Regex => unreachable!("they have tests of their own"),
    }
}

/// Returns the order of keys that match the same text: the higher, the more specific.
fn rank(kind: MatchKind, key: &str, text: &str) -> usize {
    match (kind, key.strip_prefix("*.")) {
        (MatchKind::Domain, Some(above)) => 2 * above.len() + 1,
        (MatchKind::Domain, None) if key == text => usize::MAX,
        (MatchKind::Domain, None) => 2 * key.len(),
        _ => key.len(),
    }
}

#[test]
fn the_longest_entry_that_matches_is_found() {
    let mut random = fastrand::Rng::with_seed(11);
    for (kind, round) in KINDS.into_iter().flat_map(|kind| (0..40).map(move |round| (kind, round))) {
        // Few different bytes, so that keys begin and end each other.
        let mut word = |length: usize| -> String {
            let length = 1 + random.usize(..length);
            let alphabet: &[u8] = if kind == MatchKind::Domain { b"ab" } else { b"ab/" };
            (0..length).map(|_| char::from(alphabet[random.usize(..alphabet.len())])).collect()
        };
        let mut name = |length: usize| match kind {
            MatchKind::Domain => (0..1 + length / 4).map(|_| word(2)).collect::<Vec<_>>().join("."),
            MatchKind::PathPrefix => format!("/{}", word(length)),
            _ => word(length),
        };
        let mut keys: Vec<String> = (0..60).map(|_| name(8)).collect();
        if kind == MatchKind::Domain {
            keys.extend((0..30).map(|_| format!("*.{}", name(8))));
        }
        let entries: BTreeMap<&str, &str> = keys.iter().map(|key| (&**key, &**key)).collect();
        let entries: Vec<(&str, &str)> = entries.into_iter().collect();
        let table = build(TableForm { kind, ignores_case: round % 2 == 1 }, &entries);
        assert_eq!(table.len(), entries.len());
        for _ in 0..300 {
            let text = name(12);
            let matching = entries.iter().map(|(key, _)| *key).filter(|key| matches(kind, key, &text));
            let expected = matching.max_by_key(|key| rank(kind, key, &text));
            let found = text_of(table.find(Key::Text(text.as_bytes()), u32::MAX));
            assert_eq!(found.as_deref(), expected, "{kind:?} {text}");
        }
        for (key, value) in &entries {
            assert_eq!(table.own_value(key).unwrap(), Some(Some(value.as_bytes())), "{kind:?} {key}");
        }
        let mut seen = Vec::new();
        table.visit(&mut |key, _| seen.push(key.into_owned()));
        seen.sort_unstable();
        assert!(seen.iter().map(String::as_str).eq(entries.iter().map(|(key, _)| *key)), "{kind:?}");
    }
}

#[test]
fn the_longest_network_of_an_address_is_found() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut builder = TableBuilder::new(TableForm { kind: MatchKind::Network, ignores_case: false });
    let mut networks: BTreeMap<(u8, u128), String> = BTreeMap::new();
    for _ in 0..400 {
        // Few addresses, so that networks are inside each other.
        let prefix = random.u8(0..=16) + 112;
        let address = (0x2001_u128 << 112 | u128::from(random.u16(..)))
            & u128::MAX.checked_shl(u32::from(128 - prefix)).unwrap_or(0);
        let text = format!("{}/{prefix}", std::net::Ipv6Addr::from_bits(address));
        if networks.insert((prefix, address), text.clone()).is_none() {
            builder.add(&text, Some(text.as_bytes())).unwrap();
        }
        let prefix = random.u8(0..=32);
        let address = (0x0a00_0000 | random.u32(..) & 0xffff)
            & u32::MAX.checked_shl(u32::from(32 - prefix)).unwrap_or(0);
        let text = format!("{}/{prefix}", std::net::Ipv4Addr::from_bits(address));
        // An IPv4 network has 96 bits more as a key of this test.
        let key = (prefix + 96, 0xffff_0000_0000 | u128::from(address));
        if networks.insert(key, text.clone()).is_none() {
            builder.add(&text, Some(text.as_bytes())).unwrap();
        }
    }
    let table = builder.build().unwrap();
    assert_eq!(table.len(), networks.len());
    for round in 0..20_000 {
        let address: IpAddr = match round % 2 {
            0 => std::net::Ipv6Addr::from_bits(0x2001 << 112 | u128::from(random.u32(..) & 0x1_ffff)).into(),
            _ => std::net::Ipv4Addr::from_bits(0x0a00_0000 | random.u32(..) & 0x1_ffff).into(),
        };
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        let is_in = |(prefix, network): &(u8, u128)| {
            (bits ^ network).checked_shr(u32::from(128 - prefix)).unwrap_or(0) == 0
        };
        let expected = networks.iter().rfind(|(key, _)| is_in(key)).map(|(_, text)| text.clone());
        assert_eq!(text_of(table.find(Key::Address(address), u32::MAX)), expected, "{address}");
        assert_eq!(text_of(table.find(Key::Text(address.to_string().as_bytes()), u32::MAX)), expected);
    }
    let mapped = Key::Address("::ffff:10.0.1.1".parse().unwrap());
    let plain = Key::Address("10.0.1.1".parse().unwrap());
    assert_eq!(table.find(mapped, u32::MAX), table.find(plain, u32::MAX));
    assert_eq!(table.find(Key::Text(b"10.0.0.0/8"), u32::MAX), None);
}

#[test]
fn names_are_compared_without_case_and_final_dot() {
    let table = build(
        TableForm { kind: MatchKind::Domain, ignores_case: true },
        &[("Example.ORG.", "own"), ("*.b.example.org", "below")],
    );
    for (name, expected) in [
        ("EXAMPLE.org", Some("own")),
        ("a.example.org.", Some("own")),
        ("b.example.org", Some("own")),
        ("x.B.example.org", Some("below")),
        ("anexample.org", None),
        (".example.org", None),
        ("org", None),
        ("", None),
        (&"a.".repeat(200), None),
    ] {
        assert_eq!(text_of(table.find(Key::Text(name.as_bytes()), u32::MAX)).as_deref(), expected, "{name}");
    }
    let exact = build(TableForm { kind: MatchKind::Exact, ignores_case: true }, &[("Key-A", "1")]);
    assert!(exact.find(Key::Text(b"kEY-a"), u32::MAX).is_some());
    let long = "X".repeat(100);
    let exact = build(TableForm { kind: MatchKind::Exact, ignores_case: true }, &[(&long, "1")]);
    assert!(exact.find(Key::Text("x".repeat(100).as_bytes()), u32::MAX).is_some());
    for invalid in ["", ".", "*.", "*", "a.*.b", ".a", "a..b", "a..", "a/b"] {
        let form = TableForm { kind: MatchKind::Domain, ignores_case: true };
        assert!(TableBuilder::new(form).add(invalid, None).is_err(), "{invalid}");
    }
}

#[test]
fn entries_take_little_memory() {
    let count = 100_000;
    for (kind, per_entry_max) in [(MatchKind::Exact, 46), (MatchKind::Prefix, 46)] {
        let mut builder = TableBuilder::new(TableForm { kind, ignores_case: false });
        for number in 0..count {
            builder.add(&format!("h{number:07}.example.org"), Some(b"pool-00001")).unwrap();
        }
        let bytes = builder.build().unwrap().memory_bytes() / count;
        assert!(bytes <= per_entry_max, "{kind:?}: {bytes} bytes");
    }
    let mut builder = TableBuilder::new(TableForm { kind: MatchKind::Network, ignores_case: false });
    for number in 0..count {
        let address = std::net::Ipv4Addr::from_bits((number as u32) << 8);
        builder.add(&format!("{address}/24"), Some(b"")).unwrap();
    }
    let bytes = builder.build().unwrap().memory_bytes() / count;
    assert!(bytes <= 16, "{bytes} bytes");
}

#[test]
fn the_first_expression_that_matches_is_found() {
    let form = TableForm { kind: MatchKind::Regex, ignores_case: false };
    let table = build(form, &[("^/a/b", "1"), ("^/a", "2"), ("(?i)^/A", "3"), ("\\D$", "4"), ("^$", "5")]);
    for (text, expected) in
        [("/a/b", "1"), ("/a/c", "2"), ("/A", "3"), ("/1x", "4"), ("", "5"), ("/1", "none"), ("x/a2", "none")]
    {
        let found = text_of(table.find(Key::Text(text.as_bytes()), u32::MAX));
        assert_eq!(found.as_deref().unwrap_or("none"), expected, "{text}");
    }
    let mut keys = Vec::new();
    table.visit(&mut |key, _| keys.push(key.into_owned()));
    assert_eq!(keys, ["^/a/b", "^/a", "(?i)^/A", "\\D$", "^$"]);
    let without_case = TableForm { ignores_case: true, ..form };
    let table = build(without_case, &[("^\\D+b$", "1")]);
    assert!(
        table.find(Key::Text(b"AB"), u32::MAX).is_some() && table.find(Key::Text(b"1b"), u32::MAX).is_none()
    );
    assert_eq!(table.own_value("^\\D+b$"), Ok(Some(Some(&b"1"[..]))));
}

#[test]
fn expressions_are_bounded_and_distinct() {
    let form = TableForm { kind: MatchKind::Regex, ignores_case: false };
    let mut builder = TableBuilder::new(form);
    assert!(builder.add("(", Some(b"")).unwrap_err().to_string().contains("unclosed group"));
    let large = builder.add("\\w{4000}", Some(b"")).unwrap_err().to_string();
    assert!(large.contains("more than 256 KiB"), "{large}");
    for number in 0..EXPRESSIONS_MAX {
        builder.add(&number.to_string(), Some(b"")).unwrap();
    }
    assert_eq!(builder.add("x", Some(b"")), Err(EntryFault::TooManyExpressions));
    let mut builder = TableBuilder::new(form);
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "1"), ("a", "3")] {
        builder.add(key, Some(value.as_bytes())).unwrap();
    }
    assert_eq!(builder.build().err(), Some(vec![Conflict { earlier: 0, later: 3 }]));
}

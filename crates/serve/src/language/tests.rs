//! The language as a table of targets and what is asked for by each. Not the answers themselves.

use super::*;

fn options(target: &str) -> Options {
    match parse_target(target.as_bytes()) {
        Purpose::Answer(options) => options,
        other => panic!("{target}: {other:?}"),
    }
}

fn drawn(target: &str, name: Name) -> i64 {
    options(target).draw(name, &mut fastrand::Rng::with_seed(1))
}

#[test]
fn each_row_stands_where_its_name_says() {
    for (index, row) in OPTIONS.iter().enumerate() {
        assert_eq!(row.name as usize, index, "{}", row.letters);
    }
}

#[test]
fn each_example_is_read_as_its_own_option_and_changes_it() {
    for row in &OPTIONS {
        let found = options(&format!("/any/path?{}", row.example));
        assert!(!found.unknown, "{}", row.example);
        let value = found.draw(row.name, &mut fastrand::Rng::with_seed(1));
        assert_ne!(value, row.default, "{}", row.example);
        for other in OPTIONS.iter().filter(|other| other.name != row.name) {
            let value = found.draw(other.name, &mut fastrand::Rng::with_seed(1));
            assert_eq!(value, other.default, "{} of {}", other.letters, row.example);
        }
    }
}

#[test]
fn every_option_has_its_bound() {
    for row in &OPTIONS {
        let value = drawn(&format!("/?{}=9999999999999999999", row.letters), row.name);
        assert_eq!(value, row.max, "{}", row.letters);
    }
}

#[test]
fn suffixes_apply_to_every_size() {
    for row in OPTIONS.iter().filter(|row| row.unit == Unit::Plain && row.max >= 100 << 10) {
        let value = drawn(&format!("/?{}=100k", row.letters), row.name);
        assert_eq!(value, 100 << 10, "{}", row.letters);
    }
}

#[test]
fn every_separator_separates() {
    for separator in ["&", "?", ",", ";", "/"] {
        let found = options(&format!("/x?s=1k{separator}r=404{separator}t=1"));
        assert!(!found.unknown, "{separator}");
        let mut rng = fastrand::Rng::with_seed(1);
        let values = [Name::Size, Name::Status, Name::Delay].map(|name| found.draw(name, &mut rng));
        assert_eq!(values, [1024, 404, 1_000_000], "{separator}");
    }
}

#[test]
fn reading_stops_at_what_is_no_option_and_notes_it() {
    for (target, size, unknown) in [
        ("/?s=5&foo&s=7", 5, true),
        ("/?s=5x&s=7", 5, true),
        ("/?s=5&&s=7", 5, true),
        ("/?s=abc", 0, true),
        ("/?h", 0, true),
        ("/?z=1&s=7", 7, true),
        ("/?s=5&", 5, false),
        ("/?", 0, false),
        ("/?s=&r=200", 0, false),
        ("/a?s=5?s=6", 6, false),
        ("http://h/p?s=9", 9, false),
    ] {
        assert_eq!(drawn(target, Name::Size), size, "{target}");
        assert_eq!(options(target).unknown, unknown, "{target}");
    }
}

#[test]
fn paths_decide_only_without_a_question_mark() {
    assert_eq!(parse_target(b"/"), Purpose::Help);
    assert_eq!(parse_target(b"http://host"), Purpose::Help);
    assert_eq!(parse_target(b"http://host/stats"), Purpose::Stats);
    assert_eq!(parse_target(b"/stats"), Purpose::Stats);
    for target in ["/stats?", "/?", "/stats/", "/index.html", "*"] {
        assert_eq!(options(target), Options::default(), "{target}");
    }
}

#[test]
fn only_numbers_without_chance_are_fixed() {
    assert!(options("/?s=1k&t=5&k=1").is_fixed());
    for target in ["/?s=5r", "/?t=1~2", "/?r=200:95,503:5", "/?t=exp(3)"] {
        assert!(!options(target).is_fixed(), "{target}");
    }
}

//! Table of targets and the options of each. Does not test the responses.

use super::*;

fn url_options(target: &str) -> UrlOptions {
    match parse_target(target.as_bytes()) {
        TargetKind::Response(options) => options,
        other => panic!("{target}: {other:?}"),
    }
}

fn draw_value(target: &str, name: OptionName) -> i64 {
    url_options(target).draw(name, &mut fastrand::Rng::with_seed(1))
}

#[test]
fn each_option_is_at_the_index_of_its_name() {
    for (index, option) in OPTIONS.iter().enumerate() {
        assert_eq!(option.name as usize, index, "{}", option.key);
    }
}

#[test]
fn each_example_is_read_as_its_own_option_and_changes_it() {
    for option in &OPTIONS {
        let parsed = url_options(&format!("/any/path?{}", option.example));
        assert!(!parsed.has_unknown, "{}", option.example);
        let value = parsed.draw(option.name, &mut fastrand::Rng::with_seed(1));
        assert_ne!(value, option.default, "{}", option.example);
        for other in OPTIONS.iter().filter(|other| other.name != option.name) {
            let value = parsed.draw(other.name, &mut fastrand::Rng::with_seed(1));
            assert_eq!(value, other.default, "{} of {}", other.key, option.example);
        }
    }
}

#[test]
fn every_option_has_its_bound() {
    for option in &OPTIONS {
        let value = draw_value(&format!("/?{}=9999999999999999999", option.key), option.name);
        assert_eq!(value, option.max, "{}", option.key);
    }
}

#[test]
fn suffixes_apply_to_every_size() {
    for option in OPTIONS.iter().filter(|row| row.unit == ValueUnit::Plain && row.max >= 100 << 10) {
        let value = draw_value(&format!("/?{}=100k", option.key), option.name);
        assert_eq!(value, 100 << 10, "{}", option.key);
    }
}

#[test]
fn every_separator_separates() {
    for separator in ["&", "?", ",", ";", "/"] {
        let parsed = url_options(&format!("/x?s=1k{separator}r=404{separator}t=1"));
        assert!(!parsed.has_unknown, "{separator}");
        let mut rng = fastrand::Rng::with_seed(1);
        let values =
            [OptionName::Size, OptionName::Status, OptionName::Delay].map(|name| parsed.draw(name, &mut rng));
        assert_eq!(values, [1024, 404, 1_000_000], "{separator}");
    }
}

#[test]
fn parsing_stops_at_an_invalid_option_and_records_it() {
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
        assert_eq!(draw_value(target, OptionName::Size), size, "{target}");
        assert_eq!(url_options(target).has_unknown, unknown, "{target}");
    }
}

#[test]
fn paths_decide_only_without_a_question_mark() {
    assert_eq!(parse_target(b"/"), TargetKind::Help);
    assert_eq!(parse_target(b"http://host"), TargetKind::Help);
    assert_eq!(parse_target(b"http://host/stats"), TargetKind::Stats);
    assert_eq!(parse_target(b"/stats"), TargetKind::Stats);
    for target in ["/stats?", "/?", "/stats/", "/index.html", "*"] {
        assert_eq!(url_options(target), UrlOptions::default(), "{target}");
    }
}

#[test]
fn only_numbers_without_chance_are_fixed() {
    assert!(url_options("/?s=1k&t=5&k=1").is_fixed());
    for target in ["/?s=5r", "/?t=1~2", "/?r=200:95,503:5", "/?t=exp(3)"] {
        assert!(!url_options(target).is_fixed(), "{target}");
    }
}

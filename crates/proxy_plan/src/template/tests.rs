//! Tests of texts with values; those of the values of a request are with `proxy::route::values`.

use std::cell::Cell;

use super::fixtures::FixedValues;
use super::*;

type Pairs = &'static [(&'static str, &'static str)];

const PAIRS: Pairs = &[
    ("host", "a.example:80"),
    ("path", "/x/y"),
    ("query", "?b=1"),
    ("header.x-a", "one\r\ntwo\0 <\"&'>\\"),
    ("cookie.id", "7"),
    ("status", "404"),
];

fn values<'a>() -> FixedValues<'a> {
    FixedValues { pairs: PAIRS, overflows: Cell::new(0) }
}

fn rendered(text: &str, escape: Escape) -> String {
    let mut out = Vec::new();
    match parse(text, Scope::Response, KnownValues::default()).unwrap() {
        Text::Literal(text) => return format!("literal {text}"),
        Text::Template(template) => template.render(&values(), escape, &mut out).unwrap(),
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn values_defaults_and_braces() {
    for (text, expected) in [
        ("{path}{query}", "/x/y?b=1"),
        ("a{{{path}}}b", "a{/x/y}b"),
        ("{{\"a\":\"b\"}}", "literal {\"a\":\"b\"}"),
        ("plain", "literal plain"),
        ("{header.x-b:-none}", "none"),
        ("[{header.x-b}]", "[]"),
        ("{cookie.id:-0}:{status}", "7:404"),
        ("{header.x-a}", "onetwo <\"&'>\\"),
    ] {
        assert_eq!(rendered(text, Escape::Field), expected, "{text}");
    }
    assert_eq!(
        rendered("<b title='{header.x-a}'>", Escape::Html),
        "<b title='onetwo &lt;&quot;&amp;&#39;&gt;\\'>"
    );
    assert_eq!(
        rendered("{{\"a\":\"{header.x-a}\"}}", Escape::Json),
        "{\"a\":\"one\\u000d\\u000atwo\\u0000 <\\\"&'>\\\\\"}"
    );
    for (content_type, escape) in [
        ("text/html; charset=utf-8", Escape::Html),
        ("application/problem+json", Escape::Json),
        ("image/svg+xml", Escape::Html),
        ("text/plain", Escape::Plain),
    ] {
        assert_eq!(Escape::from_content_type(content_type), escape, "{content_type}");
    }
}

#[test]
fn faults_have_a_place_and_a_remedy() {
    let fault = |text: &str, scope, regex: Option<&str>| {
        let regex = regex.map(|text| regex::Regex::new(text).unwrap());
        let error =
            parse(text, scope, KnownValues { regex: regex.as_ref(), maps: &[] }).unwrap_err().remove(0);
        format!("{} {}", error.at, error.fault)
    };
    let message = |text: &str| fault(text, Scope::Message, None);
    assert_eq!(
        message("x {hots}"),
        "2 '{hots}' is not a value (did you mean 'host'?); for literal braces, double them: \"x {{hots}}\""
    );
    assert!(message("{\"a\":1}").contains("double them: \"{{\\\"a\\\":1}}\""), "{}", message("{\"a\":1}"));
    assert!(message("a{b").starts_with("1 '{' has no '}'") && message("a}b").starts_with("1 '}' has no '{'"));
    assert!(message("{a{path}").starts_with("0 '{' has no '}'"));
    assert!(message("{status}").contains("only in fields of responses"));
    assert!(message("{header.}").contains("{header.NAME}") && message("{header.a b}").contains("'a b'"));
    assert!(message("{1}").contains("exactly one path-regex"));
    assert!(fault("{3}", Scope::Message, Some("^/(a)/(b)")).ends_with("has 2 groups"));
    assert!(fault("{tenant}", Scope::Message, Some("^/(?P<tenants>a)")).contains("did you mean 'tenants'"));
    assert!(fault("{route}", Scope::Key, None).contains("in the texts of a route"));
    assert!(fault("{request-id}", Scope::Route, None).contains("in fields"));
    let long = format!("{{{}}}", "x".repeat(1000));
    assert!(message(&long).contains("double them: {{ and }}"));
}

#[test]
fn a_key_is_a_name_or_a_text() {
    let mut out = vec![1];
    parse_value("cookie.id", Scope::Key, KnownValues::default()).unwrap().render_key(&values(), &mut out);
    assert_eq!(out, b"7");
    parse_value("{cookie.id}/{host}", Scope::Key, KnownValues::default())
        .unwrap()
        .render_key(&values(), &mut out);
    assert_eq!(out, b"7/a.example:80");
    for invalid in ["cookie", "user", "", "{{", "status", "{1}", "1"] {
        assert!(parse_value(invalid, Scope::Key, KnownValues::default()).is_err(), "{invalid}");
    }
}

#[test]
fn a_long_text_is_left_out_and_noted() {
    let long = "/x".repeat(TEXT_BYTES_MAX / 4 + 1);
    let pairs = [("path", &*long)];
    let values = FixedValues { pairs: &pairs, overflows: Cell::new(0) };
    let Text::Template(template) = parse("{path}{path}", Scope::Message, KnownValues::default()).unwrap()
    else {
        panic!()
    };
    let mut out = b"before".to_vec();
    assert_eq!(template.render(&values, Escape::Field, &mut out), Err(TextTooLong));
    assert_eq!((&*out, values.overflows.get()), (&b"before"[..], 1));
    assert_eq!(Text::Template(template.clone()).location(&values), Err(TextTooLong));
    template.render_key(&values, &mut out);
    assert_eq!((out.len(), values.overflows.get()), (TEXT_BYTES_MAX, 2));
}

#[test]
fn a_location_cannot_be_bent() {
    let table: [(&str, Pairs, &str); 24] = [
        (
            "https://{host}{path}{query}",
            &[("host", "a:80"), ("path", "/x"), ("query", "?y=1")],
            "https://a/x?y=1",
        ),
        ("https://{host}:8443{path}", &[("host", "[::1]:80"), ("path", "/")], "https://[::1]:8443/"),
        ("{path}", &[("path", "//evil.example/x")], "/evil.example/x"),
        ("{path}", &[("path", "/\\evil.example")], "/evil.example"),
        ("{path}", &[("path", "/b\\c")], "/b%5Cc"),
        ("https://good{path}", &[("path", "@evil.example:80")], "https://good/"),
        ("https://{host}{path}", &[("host", "good@evil"), ("path", "/")], "https://good%40evil/"),
        ("https://{host}/", &[("host", "a\r\nset-cookie: x")], "https://a%0D%0Aset-cookie/"),
        ("/a{query}", &[("query", "?y\n")], "/a?y%0A"),
        // Groups.
        ("{1}", &[("1", "/evil.example")], "/evil.example"),
        ("{1}", &[("1", "https:/evil.example")], "/https:/evil.example"),
        ("/{1}", &[("1", "/evil.example")], "/evil.example"),
        ("/{1}/{2}", &[("2", "evil.example")], "/evil.example"),
        ("/{1}/x", &[("1", "a")], "/a/x"),
        ("/new/{1}", &[("1", "a/b%2Fc")], "/new/a/b%2Fc"),
        ("https://{host}{1}", &[("host", "good"), ("1", ".evil.example/x")], "https://good/.evil.example/x"),
        ("https://{host}{1}{query}", &[("host", "good"), ("1", "/x"), ("query", "?q")], "https://good/x?q"),
        ("https://good{1}", &[("1", "@evil.example")], "https://good/@evil.example"),
        ("https://{1}.example.org/", &[("1", "evil.example/")], "https://evil.example%2F.example.org/"),
        ("//{1}.example.org/", &[("1", "a@b:1")], "//a%40b%3A1.example.org/"),
        // Others.
        ("/login?next={header.x-a}", &[("header.x-a", "/a?b=c&d")], "/login?next=%2Fa%3Fb%3Dc%26d"),
        ("{header.x-a}", &[("header.x-a", "//evil.example")], "%2F%2Fevil.example"),
        ("/{cookie.a:-none}", &[], "/none"),
        ("/fixed", &[], "/fixed"),
    ];
    let regex = regex::Regex::new("(.*)(.*)").unwrap();
    for (text, pairs, expected) in table {
        let text = parse(text, Scope::Message, KnownValues { regex: Some(&regex), maps: &[] }).unwrap();
        let location = text.location(&FixedValues { pairs, overflows: Cell::new(0) }).unwrap();
        assert_eq!(String::from_utf8(location).unwrap(), expected, "{}", text.source());
    }
}

#[test]
fn every_name_of_the_table_is_parsed() {
    for fact in Fact::ALL {
        let text = parse(&format!("{{{}}}", fact.name()), Scope::Log, KnownValues::default()).unwrap();
        assert!(text.variables().eq([&Variable::Fact(*fact)]) && !fact.doc().is_empty());
    }
}

//! Flags of other load generators that weir does not have: what to type instead.

use crate::flags;

/// Flag of another program, and its replacement in `weir load`.
const PEER_FLAGS: &[(&str, &str)] = &[
    ("-p", "streams of oha: --http 2 -m N; body of ab: --data-file FILE; protocol of h2load: --http 2"),
    ("-A", "Accept header of oha: -H 'Accept: TYPE'"),
    ("-N", "duration of h2load is -d, and its number of requests -n"),
    ("-i", "HEAD requests of ab: -X HEAD"),
    ("-g", "data for gnuplot of ab: --csv FILE, or --html FILE"),
    ("-e", "percentiles of ab: -P"),
    ("--vus", "virtual users of k6: -c N"),
    ("--iterations", "iterations of k6: -n N"),
    ("--stage", "stages of k6: --stages LIST"),
    ("--out", "output of k6: --json FILE, --csv FILE or --html FILE"),
    ("--summary-export", "summary of k6: --json FILE"),
    ("--no-tui", "without --tui there is no full screen"),
    ("--disable-keepalive", "a new connection for each request: -r 1"),
    ("--disable-compression", "requests have no Accept-Encoding unless -H adds it"),
    ("--latency-correction", "response times always count from the due time"),
    ("--burst-delay", "bursts are stages: --stages LIST"),
    ("--http2", "HTTP/2: --http 2"),
    ("--h1", "HTTP/1.1: --http 1"),
    ("--npn-list", "protocols: --http 1 or --http 2"),
    ("--clients", "connections: -c N"),
    ("--script", "several requests: --targets FILE or --file FILE"),
    ("--workers", "connections of vegeta: -c N"),
    ("--max-workers", "connections of vegeta: -c N"),
    ("--output", "record of the run: --json FILE"),
];

/// Returns what to type instead of a flag of another load generator.
pub(crate) fn hint(command: Option<&str>, flag: &str) -> Option<&'static str> {
    if command != Some("load") {
        return None;
    }
    PEER_FLAGS.iter().find(|(name, _)| *name == flag).map(|(_, hint)| *hint)
}

/// Returns what to type instead of a word that other load generators understand differently: a long flag with one
/// dash, or `-q` with a rate. The flags of weir alone would read them as other flags, and report a URL that nobody
/// typed.
pub(crate) fn misread(arguments: &[String]) -> Option<String> {
    let command = arguments.get(1).filter(|command| ["load", "edge"].contains(&command.as_str()))?;
    let words = arguments.get(2..).unwrap_or_default();
    let suggest_correction = |(at, word): (usize, &String)| {
        let next = words.get(at + 1).map(String::as_str);
        if word == "-q" && next.is_some_and(|next| next.parse::<f64>().is_ok()) {
            let rate = next.unwrap_or_default();
            return Some(format!("-q: it only hides lines here; the rate of oha is -R {rate}"));
        }
        let name = word.strip_prefix('-').filter(|name| !name.starts_with('-'))?.split('=').next()?;
        let long = format!("--{name}");
        if name.len() < 3 {
            return None;
        }
        if let Some(instead) = hint(Some(command), &long) {
            return Some(format!("{word}: {instead}"));
        }
        let is_flag = flags::has_long_flag(command, name);
        is_flag.then(|| format!("{word}: long flags have two dashes: --{}", &word[1..]))
    };
    words.iter().enumerate().find_map(suggest_correction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_would_be_read_as_something_else_are_named() {
        let of = |line: &str| misread(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for (line, part) in [
            ("weir load -q 100 http://h/", "-R 100"),
            ("weir load -rate 50 http://h/", "--rate"),
            ("weir load -rate=50/s http://h/", "--rate=50/s"),
            ("weir load -duration=5s http://h/", "--duration=5s"),
            ("weir load -targets f", "--targets"),
            ("weir load -max-workers 5 http://h/", "-c N"),
            ("weir edge -threads 2 http://h/", "--threads"),
        ] {
            let text = of(line).unwrap_or_else(|| panic!("{line}"));
            assert!(text.contains(part), "{line}: {text}");
        }
        for line in [
            "weir load -q http://h/",
            "weir load -c64 -d10s -t4 -w2s http://h/",
            "weir load -XPOST -H a:b http://h/",
            "weir serve -targets f",
            "weir load --rate 5 -kq http://h/",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn a_hint_is_about_a_flag_that_load_does_not_have_and_names_those_that_it_has() {
        let accepts = |words: &[&str]| {
            let line = ["weir", "load"].iter().chain(words).copied();
            flags::command_line_with_help().try_get_matches_from(line).is_ok()
        };
        assert_eq!((hint(Some("serve"), "-p"), hint(Some("load"), "-zz")), (None, None));
        for (flag, text) in PEER_FLAGS {
            if !accepts(&[flag, "1"]) && !accepts(&[flag]) {
                assert_eq!(hint(Some("load"), flag), Some(*text));
                let named = text.split_whitespace().filter(|word| word.starts_with('-'));
                for name in named.map(|word| word.trim_end_matches([',', ';', ':'])) {
                    let is_known = accepts(&[name, "1"]) || accepts(&[name]);
                    assert!(is_known, "{name} in the hint for {flag}");
                }
            } else {
                panic!("load has {flag}: its hint is superfluous");
            }
        }
    }
}

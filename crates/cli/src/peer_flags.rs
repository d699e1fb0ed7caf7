//! Flags of other load generators that weir does not have: what to type instead.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

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

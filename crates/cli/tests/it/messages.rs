//! Messages about a file that is not there: the file or the flag comes first, the file is named once, and nothing
//! else of the code shows.

use crate::support::run_weir;

/// A file that no machine has.
const FILE: &str = "/no/such/place/of-a-file";
/// Commands with that file, and the start of their message: the file itself, or its flag.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["serve", FILE], FILE),
    (&["serve", "--tls-cert", FILE, "--tls-key", "/no/other"], "--tls-cert: "),
    (&["load", "--data-file", FILE, "http://127.0.0.1:1/"], "--data-file: "),
    (&["load", "--replay", FILE, "http://127.0.0.1:1/"], "--replay: "),
    (&["load", "--baseline", FILE, "http://127.0.0.1:1/"], "--baseline: "),
    (&["load", "--cacert", FILE, "https://127.0.0.1:1/"], "--cacert: "),
    (&["load", "--html", FILE, "http://127.0.0.1:1/"], "--html: "),
    (&["load", "--junit", FILE, "http://127.0.0.1:1/"], "--junit: "),
    (&["load", "report", FILE], FILE),
    (&["edge", "--baseline", FILE, "http://127.0.0.1:1/"], "--baseline: "),
    (&["edge", "--junit", FILE, "http://127.0.0.1:1/"], "--junit: "),
    (&["plan", FILE], FILE),
    (&["lab", "diagnose", FILE], FILE),
    (&["lab", "show", FILE], FILE),
    (&["lab", "run", FILE], FILE),
    (&["lab", "run", "--resume", FILE], "--resume: "),
    (&["lab", "try", FILE], FILE),
    (&["lab", "compare", FILE, "/no/other"], FILE),
    (&["lab", "serve", FILE], FILE),
    (&["watch", "--once", "--json", FILE], "--json: "),
    (&["proxy", "--config", FILE], FILE),
    (&["proxy", "fmt", FILE], FILE),
    (&["proxy", "import", FILE], FILE),
];

#[test]
fn a_message_names_its_file_first_and_once() {
    for (arguments, start) in COMMANDS {
        let output = run_weir(arguments);
        let first = output.stderr.lines().next().unwrap_or_default();
        let message = first.strip_prefix("weir: ").unwrap_or_else(|| panic!("{arguments:?}: {output:?}"));
        assert!(output.code == 2 || output.code == 1, "{arguments:?}: {output:?}");
        assert!(message.starts_with(start), "{arguments:?}: {first}");
        assert_eq!(first.matches(FILE).count(), 1, "{arguments:?}: {first}");
        for wrong in ["DIR|FILE|-", "Os {", "Err(", "Some(", "kind:", "os error"] {
            assert!(!output.stderr.contains(wrong), "{arguments:?}: {wrong}: {}", output.stderr);
        }
    }
}

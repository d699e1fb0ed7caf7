//! `weir proxy fmt`, and numbers and booleans from environment variables.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use crate::support::{WEIR, command, run_weir, shared_machine, temp_dir};

const MESSY: &str = "# top\n[listener.web]\nbind=[ ':0' ]  # any\n\n\n\n[[route]]\nreturn={body=\"x\"}\n";
const TIDY: &str = "# top\n[listener.web]\nbind = [':0'] # any\n\n[[route]]\nreturn = { body = \"x\" }\n";

#[test]
fn files_are_formatted_in_place_and_checked() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (a, b) = (path("a.toml"), path("b.toml"));
    fs::write(&a, MESSY).unwrap();
    fs::write(&b, TIDY).unwrap();
    fs::set_permissions(&a, fs::Permissions::from_mode(0o640)).unwrap();
    let check = run_weir(&["proxy", "fmt", "--check", &a, &b]);
    assert_eq!((check.code, &*check.stdout), (1, &*format!("{a}\n")), "{}", check.stderr);
    assert_eq!(fs::read_to_string(&a).unwrap(), MESSY);
    let format = run_weir(&["proxy", "fmt", &a, &b]);
    assert_eq!((format.code, &*format.stdout, &*format.stderr), (0, "", ""));
    assert_eq!(fs::read_to_string(&a).unwrap(), TIDY);
    assert_eq!(fs::metadata(&a).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(run_weir(&["proxy", "fmt", "--check", &a, &b]).code, 0);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
    // A file with an error keeps all files as they are.
    fs::write(&a, MESSY).unwrap();
    fs::write(&b, "a = 1\nb =\n\nc = [\n").unwrap();
    let broken = run_weir(&["proxy", "fmt", &a, &b]);
    assert_eq!(broken.code, 2);
    assert!(broken.stderr.contains(&format!("{b}:2:")) && broken.stdout.is_empty(), "{}", broken.stderr);
    assert_eq!(fs::read_to_string(&a).unwrap(), MESSY);
    let missing = run_weir(&["proxy", "fmt", &path("none.toml")]);
    assert!(missing.code == 2 && missing.stderr.contains("none.toml"), "{}", missing.stderr);
    assert_eq!(run_weir(&["proxy", "fmt"]).code, 2);
}

#[test]
fn stdin_is_formatted_to_stdout() {
    let _shared = shared_machine();
    let format = |arguments: &[&str], text: &str| {
        let mut weir = Command::new(WEIR);
        weir.args(["proxy", "fmt"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut weir = weir.stderr(Stdio::piped()).spawn().unwrap();
        weir.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = weir.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(format(&["-"], MESSY), (0, TIDY.to_owned(), String::new()));
    assert_eq!(format(&["--check", "-"], MESSY).0, 1);
    assert_eq!(format(&["--check", "-"], TIDY).0, 0);
    let (code, stdout, stderr) = format(&["-"], "a = \u{1}");
    assert!(code == 2 && stdout.is_empty() && stderr.contains("stdin:1:"), "{stderr}");
}

#[test]
fn variables_can_be_numbers_and_booleans() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let config = "threads = \"${WEIR_TEST_THREADS:-2}\"\n[listener.web]\nbind = ':0'\nconnect = \"${WEIR_TEST_ON}\"\n\
                  http2 = \"${WEIR_TEST_ON}\"\n[[route]]\nretries = \"${WEIR_TEST_ZERO:-0}${WEIR_TEST_ONE:-}\"\npool = 'app'\n\
                  [pool.app]\nservers = [{ address = '127.0.0.1:9', weight = '${WEIR_TEST_THREADS:-5}' }]\n\
                  hash = { load-factor = '${WEIR_TEST_FACTOR:-1.5}' }\nbalance = 'consistent-hash'\n";
    let file = directory.path().join("weir.toml");
    fs::write(&file, config).unwrap();
    let check = |variables: &[(&str, &str)]| {
        let mut weir = command(WEIR, directory.path());
        weir.args(["proxy", "--check", "--config", "weir.toml"]).current_dir(directory.path());
        let output = weir.envs(variables.iter().copied()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, stderr) = check(&[("WEIR_TEST_ON", "true")]);
    assert_eq!(code, 0, "{stderr}");
    let (code, stderr) =
        check(&[("WEIR_TEST_ON", "yes"), ("WEIR_TEST_THREADS", "many"), ("WEIR_TEST_FACTOR", "0.5")]);
    assert_eq!(code, 2);
    for part in [
        "weir.toml:1:11: 'threads' is a string: write a number from 1 to 1024 (value of ${WEIR_TEST_THREADS})",
        "weir.toml:4:11: 'connect' is a string: write true or false (value of ${WEIR_TEST_ON})",
        "weir.toml:10:",
        "'load-factor' is not from 1 to 100 (value of ${WEIR_TEST_FACTOR})",
        "(value of ${WEIR_TEST_THREADS})",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    // A text without a variable is none.
    fs::write(&file, config.replace("${WEIR_TEST_THREADS:-2}", "2")).unwrap();
    let (code, stderr) = check(&[("WEIR_TEST_ON", "true")]);
    assert!(code == 2 && stderr.contains("'threads' is a string"), "{stderr}");
}

//! System programs that make things: `ip`, `tc`, `nft`. Also formats command lines.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use host::sandbox::launch::Launch;
use host::sandbox::programs::find_program;

use super::errors::CommandError;

/// Programs in use, and the Debian package of each.
const PACKAGES: &[(&str, &str)] = &[("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables")];

/// Runs a program to its end, in a network namespace if one is given.
///
/// # Errors
/// It is not installed, or it failed.
pub(super) fn run_command(
    line: &[String],
    input: Option<&str>,
    namespace: Option<PathBuf>,
) -> Result<(), CommandError> {
    let (program, arguments) = line.split_first().ok_or(CommandError::Empty)?;
    let path = find_program(program).map_err(|error| start_error(program, error))?;
    let mut command = Command::new(path);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let launch = Launch { namespace, ..Launch::default() };
    let mut child = launch.spawn(&mut command).map_err(|error| start_error(program, error))?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // A program that does not read to the end reports the reason below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| start_error(program, error))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(CommandError::Failed { line: line.join(" "), stderr })
}

fn start_error(program: &str, source: std::io::Error) -> CommandError {
    let package = PACKAGES.iter().find(|(name, _)| *name == program).map(|(_, package)| *package);
    let program = program.to_owned();
    match (source.kind(), package) {
        (std::io::ErrorKind::NotFound, Some(package)) => CommandError::NotInstalled { program, package },
        _ => CommandError::System { object: program, source },
    }
}

/// Formats words as a shell command line, with the variables that were added to the environment.
pub(crate) fn shell_command_line(env: &BTreeMap<String, String>, words: &[String]) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=,@%+".contains(character);
    let quoted = |text: &str| match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    };
    let env = env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    env.chain(words.iter().map(|word| quoted(word))).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_reported_with_its_package() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(
            start_error("nft", error).to_string(),
            "the program 'nft' is not installed: install nftables"
        );
        let line = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let failed = run_command(&line(&["sh", "-c", "echo no >&2; exit 3"]), None, None).unwrap_err();
        assert!(failed.to_string().ends_with(": no"), "{failed}");
        run_command(&line(&["cat"]), Some("x"), None).unwrap();
    }
}

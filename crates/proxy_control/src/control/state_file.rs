//! The file that keeps the changes of operators over a restart, `state-file`: one command of `weir ctl` on each line.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rt::unix_socket::effective_uid;

use super::active_config::ActiveConfig;
use super::runtime_servers::RuntimeServers;
use crate::pool::AdminState;

/// Maximum length of the file. 1,024 changed servers take a tenth of it.
const BYTES_MAX: u64 = 1 << 20;
const HEADING: &str =
    "# Changes by weir ctl. weir replaces this file after each of them, and reads it when it starts.\n";

/// Returns the content of the file: the commands that make these changes again.
pub(super) fn content(active: &ActiveConfig, servers: &RuntimeServers) -> String {
    let mut text = HEADING.to_owned();
    servers.write_commands(&mut text);
    for (pool, plan) in active.plan.pools.enumerate() {
        let shared = &active.shared.pools[pool];
        let mut write = |subject: &str, change: std::fmt::Arguments<'_>| {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{subject} {change}");
        };
        let name = &plan.name;
        if shared.operator_state() != AdminState::Ready {
            write(&format!("pool {name}"), format_args!("{}", shared.operator_state().word()));
        }
        for (id, server) in plan.servers.enumerate() {
            let eligibility = shared.eligibility(id);
            let subject = format!("server {name}/{}", server.name);
            if eligibility.operator_state() != AdminState::Ready {
                write(&subject, format_args!("{}", eligibility.operator_state().word()));
            }
            if let Some(weight) = eligibility.operator_weight() {
                write(&subject, format_args!("weight {weight}"));
            }
            if let Some(maxconn) = shared.operator_maxconn(id) {
                write(&subject, format_args!("maxconn {maxconn}"));
            }
        }
    }
    if let Some(page) = &active.maintenance_page {
        let _ = writeln!(text, "maintenance page {}", page.words());
    }
    for percent in active.plan.named_percents().iter().map(|percent| percent.named) {
        if let Some(value) = percent.changed() {
            let _ = writeln!(text, "percent {} {value}", percent.name());
        }
    }
    let mut written = Vec::new();
    for (name, split) in active.plan.named_splits().filter(|(_, split)| split.is_changed()) {
        let weights: Vec<String> = split
            .shares
            .iter()
            .map(|share| format!("{}={}", active.plan.pools[share.pool].name, share.current()))
            .collect();
        let line = format!("split {name} {}\n", weights.join(" "));
        if !written.contains(&line) {
            text.push_str(&line);
            written.push(line);
        }
    }
    text
}

/// Reads the file; `None`: there is none yet.
///
/// # Errors
/// It cannot be read, is too long, is no text, or others than root and this user can write it.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text);
    if !metadata.is_file() {
        return Err(invalid("not a file"));
    }
    if ![0, effective_uid()].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
        return Err(invalid(
            "others can write it: give it to root or to the user of the proxy, with mode 600",
        ));
    }
    let mut text = String::new();
    file.by_ref().take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(invalid("longer than 1 MiB"));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::private_file::replace;

    #[test]
    fn a_file_that_others_can_write_is_not_obeyed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        assert!(read(&path).unwrap().is_none());
        replace(&path, b"percent a 1\n").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), "percent a 1\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        for mode in [0o620, 0o602] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            assert!(read(&path).unwrap_err().to_string().contains("others can write it"));
        }
        assert!(read(directory.path()).is_err());
        replace(&path, "#\n".repeat(600_000).as_bytes()).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("1 MiB"));
        std::fs::write(&path, b"\xff").unwrap();
        assert!(read(&path).is_err());
    }
}

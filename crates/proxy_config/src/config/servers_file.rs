//! Servers of a pool in a file of their own, `servers-file`: one on each line, for programs that know them.

use std::path::Path;

use rt::address::Address;

use crate::plan::ServerPlan;

use super::errors::ValueError;
use super::health::{self, ServerTarget};
use super::validate;

/// Maximum size of a file.
const BYTES_MAX: usize = 1 << 20;
/// Maximum number of servers in it.
const SERVERS_MAX: usize = 1024;
/// Maximum number of faults that are reported at a time.
const FAULTS_MAX: usize = 20;
const WEIGHT_MAX: u32 = 256;

#[derive(Debug, thiserror::Error)]
enum LineFault {
    #[error(transparent)]
    Value(#[from] ValueError),
    #[error(
        "'{0}' is a name: servers of a file have addresses (write 127.0.0.1:9001, [::1]:9001 or unix:/path)"
    )]
    Name(Box<str>),
    #[error("'{0}' is not a weight (0 to {WEIGHT_MAX})")]
    Weight(Box<str>),
    #[error("'{0}' is not a maxconn (1 or more)")]
    Maxconn(Box<str>),
    #[error("unknown word '{0}' (write ADDRESS name=NAME weight=N maxconn=N backup)")]
    Word(Box<str>),
    #[error("another server has the name '{0}': rename one of them")]
    Duplicate(Box<str>),
    #[error("more than {SERVERS_MAX} servers")]
    TooMany,
}

/// Reads the servers of a file.
///
/// # Errors
/// Returns all faults of the file with their lines, up to 20.
pub(super) fn read(path: &Path) -> Result<Vec<ServerPlan>, Vec<String>> {
    let text = validate::read_text_file(path, BYTES_MAX).map_err(|error| vec![error.to_string()])?;
    parse(&text).map_err(|faults| {
        faults.into_iter().map(|(line, fault)| format!("{}:{line}: {fault}", path.display())).collect()
    })
}

fn parse(text: &str) -> Result<Vec<ServerPlan>, Vec<(usize, LineFault)>> {
    let (mut servers, mut faults) = (Vec::<ServerPlan>::new(), Vec::new());
    let mut names = std::collections::HashSet::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let server = match parse_line(line) {
            Ok(server) if !names.insert(server.name.clone()) => Err(LineFault::Duplicate(server.name)),
            Ok(_) if servers.len() == SERVERS_MAX => Err(LineFault::TooMany),
            parsed => parsed,
        };
        match server {
            Ok(server) => servers.push(server),
            Err(fault) => {
                let is_last = matches!(fault, LineFault::TooMany) || faults.len() + 1 == FAULTS_MAX;
                faults.push((index + 1, fault));
                if is_last {
                    break;
                }
            }
        }
    }
    if faults.is_empty() { Ok(servers) } else { Err(faults) }
}

fn parse_line(line: &str) -> Result<ServerPlan, LineFault> {
    let mut words = line.split_whitespace();
    let text = words.next().unwrap_or_default();
    let address: Address = match health::parse_target(text)? {
        ServerTarget::Fixed(address) => address,
        ServerTarget::Named(_) => return Err(LineFault::Name(text.into())),
    };
    let mut server = ServerPlan {
        name: address.to_string().into(),
        address,
        host: None,
        weight: 1,
        maxconn: None,
        backup: false,
    };
    for word in words {
        match word.split_once('=') {
            None if word == "backup" => server.backup = true,
            Some(("name", name)) => {
                validate::check_name(name)?;
                server.name = name.into();
            }
            Some(("weight", weight)) => {
                let parsed = weight.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
                server.weight = parsed.ok_or_else(|| LineFault::Weight(weight.into()))?;
            }
            Some(("maxconn", maxconn)) => {
                let parsed = maxconn.parse().ok().filter(|max: &u32| *max > 0);
                let max = parsed.ok_or_else(|| LineFault::Maxconn(maxconn.into()))?;
                server.maxconn = Some(max as usize);
            }
            _ => return Err(LineFault::Word(word.into())),
        }
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_server() {
        let text = "# of the registry\n10.0.0.1:80\n\n  [::1]:81 name=b weight=0 maxconn=7 backup # spare\n";
        let servers = parse(text).unwrap();
        assert_eq!((&*servers[0].name, servers[0].weight, servers[0].backup), ("10.0.0.1:80", 1, false));
        let second = &servers[1];
        assert_eq!((&*second.name, second.weight, second.maxconn, second.backup), ("b", 0, Some(7), true));
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn all_faults_have_their_line() {
        let faults = |text: &str| -> Vec<String> {
            parse(text).unwrap_err().into_iter().map(|(line, fault)| format!("{line}: {fault}")).collect()
        };
        let all = faults(
            "10.0.0.1\nhost.example:80\n10.0.0.1:80 weight=257\n10.0.0.1:80 maxconn=0\n\
             10.0.0.1:80 wieght=1\n10.0.0.1:80 name=a/b\n10.0.0.2:80\n10.0.0.2:80\n",
        );
        let parts = ["1: ", "2: 'host.example:80' is a name", "3: '257' is not", "4: '0' is not"];
        let rest = ["5: unknown word 'wieght=1'", "6: ", "8: another server has the name"];
        assert_eq!(all.len(), parts.len() + rest.len(), "{all:#?}");
        for (fault, part) in all.iter().zip(parts.iter().chain(&rest)) {
            assert!(fault.starts_with(part), "{fault} {part}");
        }
        let many: String = (0..1_026).map(|port| format!("10.0.0.1:{}\n", port + 1)).collect();
        assert_eq!(faults(&many), ["1025: more than 1024 servers"]);
        assert_eq!(faults(&"x\n".repeat(100)).len(), FAULTS_MAX);
    }
}

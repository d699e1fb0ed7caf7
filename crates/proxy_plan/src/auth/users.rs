//! File with users: `NAME:HASH` on each line, as `htpasswd` writes it. A line that starts with `#` is a comment. Pure.

use std::collections::HashMap;

use super::PasswordHash;
use super::password_hash::HashFault;

/// Maximum size of a file.
pub const FILE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of users.
const USERS_MAX: usize = 100_000;
/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Maximum number of faults that are reported at a time.
const FAULTS_MAX: usize = 20;

/// Users of a file.
pub struct Users {
    hashes: HashMap<Box<str>, PasswordHash>,
    /// Hash for unknown names, so that they take the time of known ones; `None`: there are no users.
    decoy: Option<PasswordHash>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum LineFault {
    #[error("no ':' between a name and its hash")]
    NoColon,
    #[error("the name is empty, longer than {NAME_BYTES_MAX} bytes, or has a control character")]
    Name,
    #[error("the name is in line {0}, too: remove one of them")]
    Duplicate(usize),
    #[error("invalid UTF-8")]
    NotText,
    #[error("more than {USERS_MAX} users")]
    TooMany,
    #[error("user '{0}' has {1}")]
    Hash(Box<str>, HashFault),
}

impl Users {
    /// Parses a file.
    ///
    /// # Errors
    /// Returns the faults of all lines as `LINE: FAULT`; beyond `FAULTS_MAX` of them, only their number.
    pub fn parse(content: &[u8]) -> Result<Self, Vec<String>> {
        let (mut hashes, mut lines) = (HashMap::new(), HashMap::new());
        let (mut faults, mut fault_count) = (Vec::new(), 0_usize);
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match parse_line(line, index + 1, &mut lines) {
                Ok((name, hash)) => drop(hashes.insert(name, hash)),
                Err(fault) => {
                    fault_count += 1;
                    if faults.len() < FAULTS_MAX {
                        faults.push(format!("{}: {fault}", index + 1));
                    }
                    if fault == LineFault::TooMany {
                        break;
                    }
                }
            }
        }
        if fault_count > faults.len() {
            faults.push(format!("{} more faults", fault_count - faults.len()));
        }
        if faults.is_empty() { Ok(Self { decoy: decoy(&hashes), hashes }) } else { Err(faults) }
    }

    pub fn find(&self, name: &str) -> Option<&PasswordHash> {
        self.hashes.get(name)
    }

    /// Returns the hash that a password is compared with: that of the user, or one that no password has.
    pub fn compared(&self, name: &str) -> Option<&PasswordHash> {
        self.find(name).or(self.decoy.as_ref())
    }

    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.hashes.len()
    }
}

fn parse_line(
    line: &[u8],
    number: usize,
    lines: &mut HashMap<Box<str>, usize>,
) -> Result<(Box<str>, PasswordHash), LineFault> {
    if lines.len() == USERS_MAX {
        return Err(LineFault::TooMany);
    }
    let line = std::str::from_utf8(line).map_err(|_| LineFault::NotText)?;
    let (name, hash) = line.split_once(':').ok_or(LineFault::NoColon)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        return Err(LineFault::Name);
    }
    if let Some(first) = lines.insert(name.into(), number) {
        return Err(LineFault::Duplicate(first));
    }
    // Others behind a second colon, as in /etc/shadow, have no meaning.
    let hash = hash.split(':').next().unwrap_or_default();
    let hash = PasswordHash::parse(hash).map_err(|fault| LineFault::Hash(name.into(), fault))?;
    Ok((name.into(), hash))
}

/// Returns a hash of the most frequent cost that no password has.
fn decoy(hashes: &HashMap<Box<str>, PasswordHash>) -> Option<PasswordHash> {
    let mut counts: HashMap<(u8, u64), usize> = HashMap::new();
    for hash in hashes.values() {
        *counts.entry(hash.cost()).or_default() += 1;
    }
    let (cost, _) = counts.into_iter().max_by_key(|(cost, count)| (*count, *cost))?;
    hashes.values().find(|hash| hash.cost() == cost).map(PasswordHash::decoy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$2b$04$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W";

    #[test]
    fn lines_have_names_and_hashes() {
        let text = format!("# comment\n\nann:{HASH}\r\n b\u{f6}b:{HASH}:x:y\n");
        let users = Users::parse(text.as_bytes()).unwrap();
        assert_eq!(users.len(), 2);
        assert!(users.find("ann").unwrap().verify(b"secret") && users.find("b\u{f6}b").is_some());
        assert!(users.find("Ann").is_none() && !users.compared("Ann").unwrap().verify(b"secret"));
        assert!(Users::parse(b"").unwrap().compared("ann").is_none());
    }

    #[test]
    fn all_faults_have_their_line() {
        let text = format!("ann\n:{HASH}\nann:{HASH}\nann:{HASH}\nbob:$apr1$x$y\n");
        let faults = Users::parse(&[text.as_bytes(), b"\xff:x"].concat()).err().unwrap();
        assert_eq!(faults.len(), 5, "{faults:?}");
        for (fault, part) in faults.iter().zip([
            "1: no ':'",
            "2: the name is empty",
            "4: the name is in line 3, too",
            "5: user 'bob' has a hash of MD5 (apr1)",
            "6: invalid UTF-8",
        ]) {
            assert!(fault.starts_with(part), "{fault}");
        }
        let faults = Users::parse("x\n".repeat(30).as_bytes()).err().unwrap();
        assert_eq!((faults.len(), &*faults[20]), (21, "10 more faults"));
    }
}

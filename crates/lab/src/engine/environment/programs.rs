//! Which builds of which programs and libraries an experiment runs: what they say of themselves, their
//! size, and a hash of the file, because two builds may call themselves the same.
//!
//! Not for starting them otherwise than to ask for their version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use host::setup::launch::Launch;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::scenario::placeholders::filled;
use crate::scenario::setup::{Program, Setup, Tool};

/// The flag with which a program says its version, where it is not `--version`.
const FLAGS: &[(&str, &str)] = &[
    ("ab", "-V"),
    ("apache2", "-v"),
    ("haproxy", "-v"),
    ("httpd", "-v"),
    ("nginx", "-v"),
    ("wrk", "-v"),
];
/// Programs that say no version: asked, they would complain.
const MUTE: &[&str] = &["h1load"];
/// How long a program may take to say its version.
const ANSWER: Duration = Duration::from_secs(2);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(10);
/// The most bytes of an answer that are read: the first line is wanted.
const ANSWER_BYTES_MAX: usize = 4096;
/// The largest file that is hashed: a debug build of weir has half of it.
const HASHED_BYTES_MAX: u64 = 512 << 20;
/// The packages of libraries that are preloaded to be compared, by the beginnings of their names (Debian's).
const PACKAGES: &[(&str, &str)] = &[
    ("libjemalloc.", "libjemalloc2"),
    ("libmimalloc.", "libmimalloc2.0"),
    ("libtcmalloc_minimal.", "libtcmalloc-minimal4"),
];
/// The most programs and libraries: an experiment with more arms than this names few of them.
const WANTED_MAX: usize = 64;

/// The programs and libraries that are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Programs, as commands name them.
    pub programs: BTreeSet<String>,
    /// Libraries that are preloaded.
    pub libraries: BTreeSet<String>,
}

impl Wanted {
    /// What is run by these setups; `weir` is this program, and what `{weir}` stands for.
    #[must_use]
    pub fn of<'a>(setups: impl IntoIterator<Item = &'a Setup>, weir: &Path) -> Self {
        let mut wanted = Self::default();
        let weir = weir.to_string_lossy();
        wanted.programs.insert(weir.clone().into_owned());
        for setup in setups {
            let extras = setup.programs.iter().map(|extra| &extra.program);
            let programs = [Some(&setup.subject), setup.origin.as_ref()].into_iter().flatten();
            for program in programs.chain(extras) {
                wanted.add(program, &weir);
            }
            if setup.tool != Tool::Weir {
                wanted.programs.insert(setup.tool.name().to_owned());
            }
        }
        wanted
    }

    fn add(&mut self, program: &Program, weir: &str) {
        let (name, variables) = started(program, weir);
        self.programs.extend(name);
        for (_, value) in variables.iter().filter(|(name, _)| name == "LD_PRELOAD") {
            // ld.so(8): blanks or colons between them.
            let files = value.split([':', ' ']).filter(|it| !it.is_empty() && !it.contains('{'));
            self.libraries.extend(files.map(str::to_owned));
        }
    }

    /// What is known of each.
    pub(super) fn read(&self) -> BTreeMap<String, String> {
        self.read_within(ANSWER)
    }

    /// The same, where each program may take so long to say its version.
    fn read_within(&self, within: Duration) -> BTreeMap<String, String> {
        let mut known = BTreeMap::new();
        for name in self.programs.iter().take(WANTED_MAX) {
            let text = program_file(name).map_or_else(
                || "not found".to_owned(),
                |path| {
                    let says =
                        version(&path, within).unwrap_or_else(|| "without a version".to_owned());
                    format!("{says}; {}", of_file(&path))
                },
            );
            known.insert(format!("program {name}"), text);
        }
        for name in self.libraries.iter().take(WANTED_MAX) {
            known.insert(format!("library {name}"), of_file(Path::new(name)));
        }
        known
    }
}

/// What a command starts, where that is told before a trial fills it in, and the variables that it has.
fn started(program: &Program, weir: &str) -> (Option<String>, Vec<(String, String)>) {
    let words = program.command.iter();
    let words = words.map(|word| filled(word, |name| (name == "weir").then_some(weir)));
    // `env NAME=VALUE program` is the program with a variable.
    let mut words = words.skip_while(|word| word == "env").peekable();
    let mut variables: Vec<(String, String)> = Vec::new();
    while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
        variables.push((name.to_owned(), value.to_owned()));
        words.next();
    }
    variables.extend(program.env.clone());
    (words.next().filter(|word| !word.contains('{')), variables)
}

/// What a command starts; none where that is told in a trial only, as it is where the folders that are searched
/// are the command's own.
#[must_use]
pub fn started_by(program: &Program) -> Option<String> {
    let (name, variables) = started(program, "{weir}");
    // An option of `env` is no program.
    name.filter(|name| !name.starts_with('-') && variables.iter().all(|(name, _)| name != "PATH"))
}

/// Why a program cannot be started on this machine; none: it can be, as far as its file tells. Files of the
/// folder that a trial runs in are not there yet.
#[must_use]
pub fn not_startable(name: &str) -> Option<String> {
    if program_file(name).is_some() || (name.contains('/') && !name.starts_with('/')) {
        return None;
    }
    let why = match fs::metadata(name).map(|it| it.is_file()) {
        _ if !name.contains('/') => "is in none of the folders of PATH on this machine".to_owned(),
        Ok(true) => "is not executable on this machine".to_owned(),
        Ok(false) => "is no file on this machine".to_owned(),
        Err(error) => format!("cannot be started on this machine: {error}"),
    };
    Some(format!("the program '{name}' {why}"))
}

/// What a program says of its version.
#[must_use]
pub fn version_of(name: &str) -> Option<String> {
    version(&program_file(name)?, ANSWER)
}

/// What is wrong with the libraries that a program preloads: one that is not there is left out by the dynamic
/// linker, which only complains, and the arm would be measured without it. Only whole paths are looked at: where
/// the linker finds others is its own affair, and a trial says what it complains of.
#[must_use]
pub fn not_there(program: &Program) -> Vec<String> {
    let mut wanted = Wanted::default();
    wanted.add(program, "weir");
    let whole = |name: &&String| name.starts_with('/') && !name.contains('$');
    wanted.libraries.iter().filter(whole).filter_map(|library| unusable(library)).collect()
}

/// Why a library cannot be preloaded, and what to do; none: it can be, as far as its file tells.
fn unusable(library: &str) -> Option<String> {
    let path = Path::new(library);
    let why = match File::open(path).and_then(|file| file.metadata()) {
        Ok(it) if it.is_file() => return None,
        Ok(_) => "it is no file".to_owned(),
        Err(error) => error.to_string(),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let package = PACKAGES.iter().find(|(begin, _)| name.starts_with(begin));
    let package = package.map(|(_, package)| format!(" (Debian: {package})")).unwrap_or_default();
    Some(format!(
        "it preloads {library}, on this machine: {why}. It would run without, and be measured as what it is \
         not: install the library{package}, or change its path in the file or by --set"
    ))
}

/// The file of a program, as it is found where one is started.
#[must_use]
pub fn program_file(name: &str) -> Option<PathBuf> {
    // Where there is no search path, execvp(3) has one of its own.
    find(name, &std::env::var("PATH").unwrap_or_else(|_| "/bin:/usr/bin".to_owned()))
}

fn find(name: &str, path: &str) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(runs);
    }
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|it| Path::new(it).join(name))
        .find(runs)
}

/// Where a file is, how large it is, and its hash.
fn of_file(path: &Path) -> String {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let shown = path.display();
    match fs::metadata(&path) {
        Err(error) => format!("{shown}: {error}"),
        Ok(it) if !it.is_file() => format!("{shown}: no file"),
        Ok(it) if it.len() > HASHED_BYTES_MAX => format!("{shown}, {} bytes", it.len()),
        Ok(it) => match hash(&path) {
            Ok(hash) => format!("{shown}, {} bytes, FNV-1a {hash:016x}", it.len()),
            Err(error) => format!("{shown}, {} bytes, not read: {error}", it.len()),
        },
    }
}

/// FNV-1a with 64 bits: it tells builds apart, and protects from nobody.
fn hash(path: &Path) -> std::io::Result<u64> {
    let mut file = File::open(path)?.take(HASHED_BYTES_MAX);
    let mut buffer = vec![0; 1 << 20];
    let mut hash = 0xcbf2_9ce4_8422_2325;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hash);
        }
        for byte in &buffer[..count] {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// The first line of what a program says of its version.
fn version(path: &Path, within: Duration) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    if MUTE.contains(&name) {
        return None;
    }
    let known = FLAGS.iter().find(|(program, _)| *program == name);
    let mut command = Command::new(path);
    command.arg(known.map_or("--version", |(_, flag)| flag)).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Launch::default().spawn(&mut command).ok()?;
    let ended = wait(&mut child, within);
    // Some say it on the one, some on the other; some call it a failure.
    let said = [said(child.stdout.as_ref()), said(child.stderr.as_ref())];
    let counts = ended.is_some_and(|status| status.success() || known.is_some());
    said.into_iter().flatten().next().filter(|_| counts)
}

/// Waits until a program ends; one that does not is ended.
fn wait(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    for _ in 0..within.as_millis() / LOOK.as_millis() {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(LOOK),
            ended => return ended.ok().flatten(),
        }
    }
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // It has a group of its own; one that is gone is what was wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    None
}

/// The first line in a pipe. It is not waited for: a program may have left a child that holds it open.
fn said(pipe: Option<&impl AsFd>) -> Option<String> {
    let pipe = pipe?.as_fd();
    let flags = fcntl_getfl(pipe).ok()?;
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).ok()?;
    let mut buffer = vec![0; ANSWER_BYTES_MAX];
    let count = rustix::io::read(pipe, &mut buffer).ok()?;
    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a program may take that does end, however busy the machine is.
    const LONG: Duration = Duration::from_secs(30);

    /// Another process writes it: a child that another test starts meanwhile would have the file open for
    /// writing, and then it could not be run (`ETXTBSY`).
    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
        let status = Command::new("sh").args(["-c", write]).arg(&path).arg(text).status();
        assert!(status.unwrap().success());
        path
    }

    #[test]
    fn every_flag_stands_once() {
        for (at, (name, flag)) in FLAGS.iter().enumerate() {
            assert!(FLAGS[..at].iter().all(|(other, _)| other != name));
            assert!(flag.starts_with('-') && !MUTE.contains(name));
        }
    }

    #[test]
    fn what_setups_run_is_found_in_their_words() {
        let program = |command: &str| Program {
            command: command.split(' ').map(str::to_owned).collect(),
            ..Program::default()
        };
        let mut setup = Setup {
            subject: program("env A=1 LD_PRELOAD=/lib/a.so /usr/sbin/nginx -c {dir}/nginx.conf"),
            origin: Some(program("{weir} serve")),
            tool: Tool::Wrk,
            ..Setup::default()
        };
        setup.subject.env.insert("LD_PRELOAD".to_owned(), "/lib/b.so:/lib/c.so".to_owned());
        let made = Setup { subject: program("{dir}/made-by-the-trial"), ..Setup::default() };
        let wanted = Wanted::of([&setup, &made], Path::new("/opt/weir"));
        let programs: Vec<&str> = wanted.programs.iter().map(String::as_str).collect();
        assert_eq!(programs, ["/opt/weir", "/usr/sbin/nginx", "wrk"]);
        let libraries: Vec<&str> = wanted.libraries.iter().map(String::as_str).collect();
        assert_eq!(libraries, ["/lib/a.so", "/lib/b.so", "/lib/c.so"]);
    }

    #[test]
    fn a_library_that_is_not_there_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("libthere.so");
        fs::write(&there, "").unwrap();
        let preloads = |library: &str| {
            let env = BTreeMap::from([("LD_PRELOAD".to_owned(), library.to_owned())]);
            Program { env, ..Program::default() }
        };
        let missing = "/no/such/libmimalloc.so.2";
        let both = preloads(&format!("{missing}:{}", there.display()));
        let folder = preloads("/tmp");
        // What only the linker can find is not refused.
        let found =
            ["libjemalloc.so.2", "./a.so", "/usr/$LIB/a.so", "/x/${LIB}/a.so", "{dir}/a.so", ""];
        for program in found.map(preloads).iter().chain([&Program::default()]) {
            assert_eq!(not_there(program), [""; 0], "{program:?}");
        }
        let told = [not_there(&both), not_there(&folder)].concat();
        assert_eq!(told.len(), 2, "{told:#?}");
        assert_eq!(not_there(&preloads(missing)), told[..1]);
        for part in ["it preloads", missing, "No such file", "(Debian: libmimalloc2.0)", "--set"] {
            assert!(told[0].contains(part), "{part}: {told:#?}");
        }
        assert!(told[1].contains("preloads /tmp, on this machine: it is no file"), "{told:#?}");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "x").unwrap();
        for (name, part) in [
            ("no-such-program", "none of the folders of PATH on this machine"),
            ("/no/such/program", "cannot be started on this machine: No such file"),
            (text.to_str().unwrap(), "is not executable on this machine"),
            ("/tmp", "is no file on this machine"),
        ] {
            let told = not_startable(name).unwrap_or_default();
            assert!(told.contains(part) && told.contains(name), "{name}: {told}");
        }
        // What a trial may write into its folder is not there yet.
        assert_eq!(
            (not_startable("sh"), not_startable("/bin/sh"), not_startable("./x")),
            (None, None, None)
        );
        let of = |line: &str| {
            let command = line.split(' ').map(str::to_owned).collect();
            started_by(&Program { command, ..Program::default() })
        };
        assert_eq!(of("env A=1 nginx -c x").as_deref(), Some("nginx"));
        for unknown in ["{weir} serve", "env -i nginx", "env PATH=/x nginx", "{dir}/x"] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn versions_are_asked_for_and_a_program_that_does_not_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let within =
            |name: &str, text: &str, within| version(&script(folder.path(), name, text), within);
        let of = |name: &str, text: &str| within(name, text, LONG);
        assert_eq!(of("one", "echo; echo \"one 1.2 $1\"; echo more").unwrap(), "one 1.2 --version");
        assert_eq!(of("nginx", "echo \"nginx version: 1 $1\" >&2").unwrap(), "nginx version: 1 -v");
        assert_eq!(of("wrk", "echo wrk 4; exit 1").unwrap(), "wrk 4");
        assert_eq!(of("other", "echo usage; exit 1"), None);
        assert_eq!(of("h1load", "echo 1"), None);
        assert_eq!(within("server", "echo listening; exec sleep 60", ANSWER), None);
        assert_eq!(of("left", "sleep 5 & echo left 1").unwrap(), "left 1");
        assert_eq!(version(Path::new("/no/such/program"), LONG), None);
    }

    #[test]
    fn two_builds_of_one_version_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let one = script(folder.path(), "one", "echo same 1.0 # a");
        let other = script(folder.path(), "other", "echo same 1.0 # b");
        assert_eq!(version(&one, LONG), version(&other, LONG));
        assert_ne!(hash(&one).unwrap(), hash(&other).unwrap());
        let empty = folder.path().join("empty");
        fs::write(&empty, "").unwrap();
        assert!(of_file(&empty).ends_with("/empty, 0 bytes, FNV-1a cbf29ce484222325"));
        assert!(of_file(Path::new("/no/such.so")).starts_with("/no/such.so: "));
        let wanted = Wanted {
            programs: BTreeSet::from([one.to_str().unwrap().to_owned(), "/no/such".to_owned()]),
            libraries: BTreeSet::from(["/no/such.so".to_owned()]),
        };
        let known = wanted.read_within(LONG);
        assert!(known[&format!("program {}", one.display())].starts_with("same 1.0; "));
        assert_eq!(known["program /no/such"], "not found");
        assert_eq!(known.len(), 3);
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        let folder = tempfile::tempdir().unwrap();
        let one = script(folder.path(), "one", "true");
        fs::write(folder.path().join("text"), "x").unwrap();
        let path = format!("/no/such:{}", folder.path().display());
        assert_eq!(find("one", &path), Some(one.clone()));
        assert_eq!(find(one.to_str().unwrap(), ""), Some(one));
        assert_eq!((find("text", &path), find("missing", &path)), (None, None));
    }
}

//! Builds of the programs and libraries of an experiment: the version that they print, the file
//! size, and a hash of the file, because two builds may print the same version.
//!
//! It starts programs only to get their version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use host::sandbox::launch::Launch;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::scenario::placeholders::fill;
use crate::scenario::program::ProgramSetup;
use crate::scenario::setup::{LabSetup, LoadTool};

/// Version flags of programs that do not have `--version`.
const VERSION_FLAGS: &[(&str, &str)] =
    &[("ab", "-V"), ("apache2", "-v"), ("haproxy", "-v"), ("httpd", "-v"), ("nginx", "-v"), ("wrk", "-v")];
/// Programs without a version flag: they would print an error.
const WITHOUT_VERSION_FLAG: &[&str] = &["h1load"];
/// Timeout for a program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between polls for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of output bytes to read: only the first line is needed.
const OUTPUT_BYTES_MAX: usize = 4096;
/// Maximum size of a file to hash: twice that of a debug build of weir.
const HASHED_BYTES_MAX: u64 = 512 << 20;
/// Debian packages of libraries that are preloaded to be compared, by the prefix of the file name.
const PACKAGES: &[(&str, &str)] = &[
    ("libjemalloc.", "libjemalloc2"),
    ("libmimalloc.", "libmimalloc2.0"),
    ("libtcmalloc_minimal.", "libtcmalloc-minimal4"),
];
/// Maximum number of programs and of libraries: even a large experiment names few of them.
const EXECUTABLES_MAX: usize = 64;

/// Programs and libraries whose builds are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutableSet {
    pub programs: BTreeSet<String>,
    pub libraries: BTreeSet<String>,
}

impl ExecutableSet {
    /// Collects the programs and libraries of these setups. `weir` is the path of the running weir,
    /// which replaces `{weir}`.
    #[must_use]
    pub fn from_setups<'a>(setups: impl IntoIterator<Item = &'a LabSetup>, weir: &Path) -> Self {
        let mut executables = Self::default();
        let weir = weir.to_string_lossy();
        executables.programs.insert(weir.clone().into_owned());
        for setup in setups {
            let extras = setup.programs.iter().map(|extra| &extra.program);
            let programs = [Some(&setup.subject), setup.origin.as_ref()].into_iter().flatten();
            for program in programs.chain(extras) {
                executables.add(program, &weir);
            }
            if setup.tool != LoadTool::Weir {
                executables.programs.insert(setup.tool.name().to_owned());
            }
        }
        executables
    }

    fn add(&mut self, program: &ProgramSetup, weir: &str) {
        let (name, variables) = program_and_env(program, weir);
        self.programs.extend(name);
        for (_, value) in variables.iter().filter(|(name, _)| name == "LD_PRELOAD") {
            // ld.so(8): blanks or colons separate the files.
            let files = value.split([':', ' ']).filter(|it| !it.is_empty() && !it.contains('{'));
            self.libraries.extend(files.map(str::to_owned));
        }
    }

    /// Reads the facts about each program and library.
    pub(super) fn read(&self) -> BTreeMap<String, String> {
        self.read_with_timeout(VERSION_TIMEOUT)
    }

    /// Does the same with another timeout for each program.
    fn read_with_timeout(&self, within: Duration) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        for name in self.programs.iter().take(EXECUTABLES_MAX) {
            let text = program_file(name).map_or_else(
                || "not found".to_owned(),
                |path| {
                    let says = read_version(&path, within).unwrap_or_else(|| "without a version".to_owned());
                    format!("{says}; {}", describe_file(&path))
                },
            );
            facts.insert(format!("program {name}"), text);
        }
        for name in self.libraries.iter().take(EXECUTABLES_MAX) {
            facts.insert(format!("library {name}"), describe_file(Path::new(name)));
        }
        facts
    }
}

/// Returns the program that a command starts, if it is known before a trial fills the placeholders
/// in, and the environment variables of the command.
fn program_and_env(program: &ProgramSetup, weir: &str) -> (Option<String>, Vec<(String, String)>) {
    let words = program.command.iter();
    let words = words.map(|word| fill(word, |name| (name == "weir").then_some(weir)));
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

/// Returns the program that a command starts. `None` if only a trial determines it, or if the
/// command sets its own PATH.
pub fn program_name(program: &ProgramSetup) -> Option<String> {
    let (name, variables) = program_and_env(program, "{weir}");
    // An option of `env` is no program.
    name.filter(|name| !name.starts_with('-') && variables.iter().all(|(name, _)| name != "PATH"))
}

/// Returns the reason why a program cannot be started on this machine. `None` if its file
/// gives no reason against it. Files of a trial's working directory do not exist yet.
pub fn start_problem(name: &str) -> Option<String> {
    if program_file(name).is_some() || (name.contains('/') && !name.starts_with('/')) {
        return None;
    }
    let reason = match fs::metadata(name).map(|it| it.is_file()) {
        _ if !name.contains('/') => "is in no directory of PATH on this machine".to_owned(),
        Ok(true) => "is not executable on this machine".to_owned(),
        Ok(false) => "is no file on this machine".to_owned(),
        Err(error) => format!("cannot be started on this machine: {error}"),
    };
    Some(format!("the program '{name}' {reason}"))
}

pub fn program_version(name: &str) -> Option<String> {
    read_version(&program_file(name)?, VERSION_TIMEOUT)
}

/// Describes missing or unusable libraries that a program preloads. The dynamic linker skips a
/// missing library with a message only, and the arm would be measured without it. Only absolute
/// paths are checked: the linker searches for others, and the trial reports the linker's message.
pub fn missing_libraries(program: &ProgramSetup) -> Vec<String> {
    let mut executables = ExecutableSet::default();
    executables.add(program, "weir");
    let is_absolute = |name: &&String| name.starts_with('/') && !name.contains('$');
    executables.libraries.iter().filter(is_absolute).filter_map(|library| library_problem(library)).collect()
}

/// Returns the reason why a library cannot be preloaded, with a remedy. `None` if its file
/// gives no reason against it.
fn library_problem(library: &str) -> Option<String> {
    let path = Path::new(library);
    let reason = match File::open(path).and_then(|file| file.metadata()) {
        Ok(it) if it.is_file() => return None,
        Ok(_) => "not a file".to_owned(),
        Err(error) => error.to_string(),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let package = PACKAGES.iter().find(|(begin, _)| name.starts_with(begin));
    let package = package.map(|(_, package)| format!(" (Debian: {package})")).unwrap_or_default();
    Some(format!(
        "cannot preload {library}: {reason}. The process would run without it, and the measurement would be \
         wrong: install the library{package}, or change its path in the file or with --set"
    ))
}

/// Finds the file of a program as execvp(3) would; for root only in directories that no other user can change,
/// because a program is started for its version.
pub fn program_file(name: &str) -> Option<PathBuf> {
    if !name.contains('/') && rustix::process::geteuid().is_root() {
        return host::sandbox::programs::find_program(name).ok();
    }
    // Without PATH, execvp(3) uses its own default.
    find_in_path(name, &std::env::var("PATH").unwrap_or_else(|_| "/bin:/usr/bin".to_owned()))
}

fn find_in_path(name: &str, path: &str) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(runs);
    }
    path.split(':').filter(|directory| !directory.is_empty()).map(|it| Path::new(it).join(name)).find(runs)
}

/// Describes a file: its path, its size and its hash.
fn describe_file(path: &Path) -> String {
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

/// Computes FNV-1a with 64 bits. It distinguishes builds and has no security purpose.
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

/// Returns the first line of the version that a program prints.
fn read_version(path: &Path, within: Duration) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    if WITHOUT_VERSION_FLAG.contains(&name) {
        return None;
    }
    let version_flag = VERSION_FLAGS.iter().find(|(program, _)| *program == name);
    let mut command = Command::new(path);
    command.arg(version_flag.map_or("--version", |(_, flag)| flag)).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Launch::default().spawn(&mut command).ok()?;
    let ended = wait_or_kill(&mut child, within);
    // Some programs print it to stdout, some to stderr. Some end with a failure code.
    let output_lines = [first_output_line(child.stdout.as_ref()), first_output_line(child.stderr.as_ref())];
    let counts = ended.is_some_and(|status| status.success() || version_flag.is_some());
    output_lines.into_iter().flatten().next().filter(|_| counts)
}

/// Waits for a process to end, and kills it after the timeout.
fn wait_or_kill(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    for _ in 0..within.as_millis() / POLL_INTERVAL.as_millis() {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
            ended => return ended.ok().flatten(),
        }
    }
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        // The process leads its own group. An error means that the group has ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    None
}

/// Reads the first line in a pipe without blocking: a child of the program may hold the pipe open.
fn first_output_line(pipe: Option<&impl AsFd>) -> Option<String> {
    let pipe = pipe?.as_fd();
    let flags = fcntl_getfl(pipe).ok()?;
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).ok()?;
    let mut buffer = vec![0; OUTPUT_BYTES_MAX];
    let count = rustix::io::read(pipe, &mut buffer).ok()?;
    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timeout for a program that does end, however busy the machine is.
    const LONG: Duration = Duration::from_secs(30);

    /// Another process writes the script. If this process wrote it, a child that another test
    /// starts meanwhile could hold the file open for writing, and then it could not be run
    /// (`ETXTBSY`).
    fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
        let path = directory.join(name);
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
        let status = Command::new("sh").args(["-c", write]).arg(&path).arg(text).status();
        assert!(status.unwrap().success());
        path
    }

    #[test]
    fn every_flag_occurs_once() {
        for (at, (name, flag)) in VERSION_FLAGS.iter().enumerate() {
            assert!(VERSION_FLAGS[..at].iter().all(|(other, _)| other != name));
            assert!(flag.starts_with('-') && !WITHOUT_VERSION_FLAG.contains(name));
        }
    }

    #[test]
    fn programs_of_setups_are_found_in_their_commands() {
        let program = |command: &str| ProgramSetup {
            command: command.split(' ').map(str::to_owned).collect(),
            ..ProgramSetup::default()
        };
        let mut setup = LabSetup {
            subject: program("env A=1 LD_PRELOAD=/lib/a.so /usr/sbin/nginx -c {dir}/nginx.conf"),
            origin: Some(program("{weir} serve")),
            tool: LoadTool::Wrk,
            ..LabSetup::default()
        };
        setup.subject.env.insert("LD_PRELOAD".to_owned(), "/lib/b.so:/lib/c.so".to_owned());
        let made = LabSetup { subject: program("{dir}/made-by-the-trial"), ..LabSetup::default() };
        let executables = ExecutableSet::from_setups([&setup, &made], Path::new("/opt/weir"));
        let programs: Vec<&str> = executables.programs.iter().map(String::as_str).collect();
        assert_eq!(programs, ["/opt/weir", "/usr/sbin/nginx", "wrk"]);
        let libraries: Vec<&str> = executables.libraries.iter().map(String::as_str).collect();
        assert_eq!(libraries, ["/lib/a.so", "/lib/b.so", "/lib/c.so"]);
    }

    #[test]
    fn a_missing_library_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("libthere.so");
        fs::write(&there, "").unwrap();
        let preloads = |library: &str| {
            let env = BTreeMap::from([("LD_PRELOAD".to_owned(), library.to_owned())]);
            ProgramSetup { env, ..ProgramSetup::default() }
        };
        let missing = "/no/such/libmimalloc.so.2";
        let both = preloads(&format!("{missing}:{}", there.display()));
        let directory = preloads("/tmp");
        // Libraries that only the linker can find are not rejected.
        let found = ["libjemalloc.so.2", "./a.so", "/usr/$LIB/a.so", "/x/${LIB}/a.so", "{dir}/a.so", ""];
        for program in found.map(preloads).iter().chain([&ProgramSetup::default()]) {
            assert_eq!(missing_libraries(program), [""; 0], "{program:?}");
        }
        let problems = [missing_libraries(&both), missing_libraries(&directory)].concat();
        assert_eq!(problems.len(), 2, "{problems:#?}");
        assert_eq!(missing_libraries(&preloads(missing)), problems[..1]);
        for part in [missing, "No such file", "libmimalloc2.0", "--set"] {
            assert!(problems[0].contains(part), "{part}: {problems:#?}");
        }
        assert!(problems[1].contains("/tmp:"), "{problems:#?}");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("text");
        fs::write(&text, "x").unwrap();
        for (name, part) in [
            ("no-such-program", "PATH"),
            ("/no/such/program", "No such file"),
            (text.to_str().unwrap(), "executable"),
            ("/tmp", "no file"),
        ] {
            let problem = start_problem(name).unwrap_or_default();
            assert!(problem.contains(part) && problem.contains(name), "{name}: {problem}");
        }
        // A file that a trial may write into its directory does not exist yet.
        assert_eq!((start_problem("sh"), start_problem("/bin/sh"), start_problem("./x")), (None, None, None));
        let program_of = |line: &str| {
            let command = line.split(' ').map(str::to_owned).collect();
            program_name(&ProgramSetup { command, ..ProgramSetup::default() })
        };
        assert_eq!(program_of("env A=1 nginx -c x").as_deref(), Some("nginx"));
        for unknown in ["{weir} serve", "env -i nginx", "env PATH=/x nginx", "{dir}/x"] {
            assert_eq!(program_of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn versions_are_queried_and_a_program_that_does_not_end_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let within =
            |name: &str, text: &str, within| read_version(&script(directory.path(), name, text), within);
        let version_text = |name: &str, text: &str| within(name, text, LONG);
        assert_eq!(version_text("one", "echo; echo \"one 1.2 $1\"; echo more").unwrap(), "one 1.2 --version");
        assert_eq!(version_text("nginx", "echo \"nginx version: 1 $1\" >&2").unwrap(), "nginx version: 1 -v");
        assert_eq!(version_text("wrk", "echo wrk 4; exit 1").unwrap(), "wrk 4");
        assert_eq!(version_text("other", "echo usage; exit 1"), None);
        assert_eq!(version_text("h1load", "echo 1"), None);
        assert_eq!(within("server", "echo listening; exec sleep 60", VERSION_TIMEOUT), None);
        assert_eq!(version_text("left", "sleep 5 & echo left 1").unwrap(), "left 1");
        assert_eq!(read_version(Path::new("/no/such/program"), LONG), None);
    }

    #[test]
    fn two_builds_of_one_version_are_distinguished() {
        let directory = tempfile::tempdir().unwrap();
        let first = script(directory.path(), "one", "echo same 1.0 # a");
        let second = script(directory.path(), "other", "echo same 1.0 # b");
        assert_eq!(read_version(&first, LONG), read_version(&second, LONG));
        assert_ne!(hash(&first).unwrap(), hash(&second).unwrap());
        let empty = directory.path().join("empty");
        fs::write(&empty, "").unwrap();
        assert!(describe_file(&empty).ends_with("/empty, 0 bytes, FNV-1a cbf29ce484222325"));
        assert!(describe_file(Path::new("/no/such.so")).starts_with("/no/such.so: "));
        let executables = ExecutableSet {
            programs: BTreeSet::from([first.to_str().unwrap().to_owned(), "/no/such".to_owned()]),
            libraries: BTreeSet::from(["/no/such.so".to_owned()]),
        };
        let facts = executables.read_with_timeout(LONG);
        assert!(facts[&format!("program {}", first.display())].starts_with("same 1.0; "));
        assert_eq!(facts["program /no/such"], "not found");
        assert_eq!(facts.len(), 3);
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        let directory = tempfile::tempdir().unwrap();
        let program = script(directory.path(), "one", "true");
        fs::write(directory.path().join("text"), "x").unwrap();
        let path = format!("/no/such:{}", directory.path().display());
        assert_eq!(find_in_path("one", &path), Some(program.clone()));
        assert_eq!(find_in_path(program.to_str().unwrap(), ""), Some(program));
        assert_eq!((find_in_path("text", &path), find_in_path("missing", &path)), (None, None));
    }
}

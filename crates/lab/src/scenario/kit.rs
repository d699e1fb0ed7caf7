//! Makes a scenario, starts programs in it, and undoes all of it when dropped.
//!
//! Not for what the programs are, nor for what they show.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use host::setup::group::Hierarchies;
use host::setup::launch::Launch;
use host::setup::{group, namespace, tun};
use rustix::process::{Pid, Signal, kill_process_group};

use super::flood::Flood;
use super::forward::{Forwarder, Hold};
use super::groups::{Bounds, groups};
use super::journal::{self, Journal, Made, Swept, run_name, start_ticks};
use super::network::{self, HALF_OPEN_ADDRESS, HALF_OPEN_PORT};
use super::plan::{NODES, Node, Scenario};
use super::{programs, run_folder};

/// The file of the one setting that is the whole machine's.
const CONNTRACK_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// Where the folders of runs are: on a disk, which `/tmp` may not be.
const FOLDERS: &str = "/var/tmp";
/// The group and the role of programs that only use processors.
const NOISE: &str = "noise";
/// The group of the subject's child processes, where they have a quota of their own.
const WORKERS: &str = "workers";
/// No such process.
const ESRCH: i32 = 3;

/// What a kit needs to know besides its plan.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where journals are kept ([`super::journal::folder`]).
    pub journals: PathBuf,
    /// Whether settings of the whole machine may be changed.
    pub allow_global: bool,
    /// Monotonic time, in nanoseconds.
    pub clock: fn() -> u64,
}

/// A scenario that stands. Everything in it goes when this is dropped, or at the next start after
/// this process was killed ([`sweep`]).
///
/// Programs that it starts end with the thread that started them, so that has to be the one that
/// waits for the run's end.
#[derive(Debug)]
pub struct Kit {
    run: String,
    scenario: Scenario,
    journal: Journal,
    folder: PathBuf,
    groups: BTreeMap<String, Vec<PathBuf>>,
    children: Vec<Child>,
    forwarder: Option<Forwarder>,
    flood: Option<Flood>,
}

impl Kit {
    /// Makes everything that `scenario` says.
    ///
    /// # Errors
    /// What could not be made and why, in words; what had been made by then is undone.
    pub fn make(scenario: &Scenario, context: &Context) -> Result<Self, String> {
        refuse(scenario, context)?;
        let run = run_name();
        let journal = Journal::begin(&context.journals, &run).map_err(|error| error.to_string())?;
        let folder = Path::new(FOLDERS).join(&run);
        let mut kit = Self {
            run,
            scenario: scenario.clone(),
            journal,
            folder,
            groups: BTreeMap::new(),
            children: Vec::new(),
            forwarder: None,
            flood: None,
        };
        // From here on `kit` undoes what is there when it is dropped, also by `?`.
        kit.note(Made::Folder { path: kit.folder.clone() })?;
        run_folder::make(&kit.folder)
            .map_err(|error| format!("{}: {error}", kit.folder.display()))?;
        kit.make_network(context)?;
        kit.make_groups(&group::hierarchies().map_err(|error| error.to_string())?)?;
        kit.start_noise()?;
        Ok(kit)
    }

    /// What the names of everything in it begin with.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// A folder for its files, which goes with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Under which address a node is reached.
    #[must_use]
    pub fn address(&self, node: Node) -> &'static str {
        self.scenario.network.address(node)
    }

    /// The file of a node's namespace; none on loopback.
    #[must_use]
    pub fn namespace(&self, node: Node) -> Option<PathBuf> {
        let nodes = self.scenario.network.nodes();
        nodes.contains(&node).then(|| namespace::path_of(&format!("{}-{node}", self.run)))
    }

    /// Does something in a node's namespace.
    ///
    /// # Errors
    /// It cannot be entered.
    pub fn within<T: Send>(
        &self,
        node: Node,
        body: impl FnOnce() -> T + Send,
    ) -> Result<T, String> {
        match self.namespace(node) {
            Some(path) => namespace::within(&path, body).map_err(|error| error.to_string()),
            None => Ok(body()),
        }
    }

    /// Starts a program at a node. Its number is for [`Kit::child`]; it ends with the kit.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&mut self, node: Node, command: &mut Command) -> Result<usize, String> {
        let launch = Launch {
            namespace: self.namespace(node),
            groups: self.groups.get(node.name()).cloned().unwrap_or_default(),
            cpus: self.scenario.pins.get(&node).cloned().unwrap_or_default(),
            descriptors: self.scenario.descriptors.get(&node).copied(),
        };
        self.launch(&launch, command)
    }

    /// A program that was started.
    pub fn child(&mut self, number: usize) -> Option<&mut Child> {
        self.children.get_mut(number)
    }

    fn launch(&mut self, launch: &Launch, command: &mut Command) -> Result<usize, String> {
        let child = launch.spawn(command).map_err(|error| {
            format!("{}: cannot be started: {error}", command.get_program().display())
        })?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        self.children.push(child);
        // It cannot be written down before it is there, but its group was; and it ends with us.
        if let Some(start_ticks) = start_ticks(pid) {
            self.note(Made::Process { pid, start_ticks })?;
        }
        Ok(self.children.len() - 1)
    }

    /// Moves the descendants of a program that was started into the group that has their quota.
    ///
    /// # Errors
    /// It has none, or they cannot be moved.
    pub fn bound_workers(&mut self, number: usize) -> Result<(), String> {
        let Some(groups) = self.groups.get(WORKERS) else { return Ok(()) };
        let pid = self.children.get(number).map_or(0, Child::id);
        let workers = descendants(pid);
        if workers.is_empty() {
            return Err("cpu-quota.workers: the subject has no child processes".to_owned());
        }
        for group in groups {
            let file = group.join("cgroup.procs");
            for worker in &workers {
                match fs::write(&file, worker.to_string()) {
                    // One that has ended meanwhile needs no quota.
                    Err(error) if error.raw_os_error() != Some(ESRCH) => {
                        return Err(format!("{}: {error}", file.display()));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, made: Made) -> Result<(), String> {
        self.journal.note(made).map_err(|error| format!("journal of {}: {error}", self.run))
    }

    fn make_network(&mut self, context: &Context) -> Result<(), String> {
        for &node in self.scenario.network.nodes() {
            let name = format!("{}-{node}", self.run);
            self.note(Made::Namespace { name: name.clone() })?;
            programs::run(&["ip".into(), "netns".into(), "add".into(), name], None, None)?;
        }
        self.start_forwarder(context.clock)?;
        for step in network::steps(&self.scenario, &self.run) {
            let namespace = step.within.and_then(|node| self.namespace(node));
            programs::run(&step.line, step.input.as_deref(), namespace)?;
        }
        for setting in network::settings(&self.scenario) {
            let name = &setting.name;
            let file = network::setting_file(name)
                .ok_or_else(|| format!("'{name}' is no name of a setting below net"))?;
            let written = self.within(setting.node, || fs::write(&file, &setting.value))?;
            written.map_err(|error| format!("{file} at {}: {error}", setting.node))?;
        }
        if let Some(max) = self.scenario.conntrack_max {
            self.set_global(Path::new(CONNTRACK_MAX), &max.to_string())?;
        }
        self.start_flood()
    }

    fn set_global(&mut self, path: &Path, value: &str) -> Result<(), String> {
        let explain = |error: io::Error| format!("{}: {error}", path.display());
        let before = fs::read_to_string(path).map_err(explain)?.trim().to_owned();
        self.note(Made::Setting { path: path.to_owned(), before })?;
        fs::write(path, value).map_err(explain)
    }

    fn start_forwarder(&mut self, clock: fn() -> u64) -> Result<(), String> {
        let Some(delay) = self.scenario.delay else { return Ok(()) };
        let make = |node: Node, peer: Node| -> Result<fs::File, String> {
            let made = self.within(node, || tun::make(&format!("to-{peer}")))?;
            made.map_err(|error| error.to_string())
        };
        let (near, far) = (delay.at.peer(), delay.at);
        let ends = [make(near, far)?, make(far, near)?];
        let hold = Hold { delay_ns: delay.round_trip_ns / 2, jitter_ns: delay.jitter_ns };
        let started = Forwarder::start(ends, hold, clock).map_err(|error| error.to_string())?;
        self.forwarder = Some(started);
        Ok(())
    }

    fn start_flood(&mut self) -> Result<(), String> {
        let (Some(rate_per_s), Some(path)) =
            (self.scenario.half_open_per_s, self.namespace(Node::Client))
        else {
            return Ok(());
        };
        let address = |text: &str, port| -> Result<SocketAddr, String> {
            let ip = text.parse().map_err(|error| format!("{text}: {error}"))?;
            Ok(SocketAddr::new(ip, port))
        };
        let from = address(HALF_OPEN_ADDRESS, 0)?;
        let to = address(self.address(Node::Subject), HALF_OPEN_PORT)?;
        let started = Flood::start(path, from, to, rate_per_s);
        self.flood = Some(started.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn make_groups(&mut self, found: &Hierarchies) -> Result<(), String> {
        let is_root = is_root();
        for name in NODES.iter().map(|node| node.name()).chain([NOISE, WORKERS]) {
            let node = Node::named(name);
            let disk = match self.scenario.disk_bytes_per_s.filter(|_| name == "subject") {
                Some(bytes) => Some((bytes, device_of(&self.folder)?)),
                None => None,
            };
            let is_workers = name == WORKERS;
            if is_workers && self.scenario.workers_quota.is_none() {
                continue;
            }
            let cpu = match is_workers {
                true => self.scenario.workers_quota,
                false => node.and_then(|node| self.scenario.cpu_quotas.get(&node).copied()),
            };
            let memory = self.scenario.memory_bytes.filter(|_| name == "subject");
            let bounds = Bounds { cpu, disk, memory };
            if !is_root && bounds == Bounds::default() {
                continue;
            }
            let wanted = groups(found, &format!("{}-{name}", self.run), bounds)?;
            for group in wanted {
                self.note(Made::Group { path: group.path.clone() })?;
                let explain =
                    |what: &str, error| format!("{}: {what}{error}", group.path.display());
                match fs::create_dir(&group.path) {
                    // A container, as a rule. Nothing has to be bounded: it is done without.
                    Err(error) if bounds == Bounds::default() && is_forbidden(&error) => continue,
                    made => made.map_err(|error| explain("", error))?,
                }
                for (file, value) in &group.settings {
                    let written = fs::write(group.path.join(file), value);
                    written.map_err(|error| explain(&format!("{file} = {value}: "), error))?;
                }
                // Workers stay in the subject's group, by which they are found; only the quota is theirs.
                if !is_workers || !group.settings.is_empty() {
                    self.groups.entry(name.to_owned()).or_default().push(group.path);
                }
            }
        }
        Ok(())
    }

    fn start_noise(&mut self) -> Result<(), String> {
        let Some(noise) = self.scenario.noise.clone() else { return Ok(()) };
        let launch = Launch {
            groups: self.groups.get(NOISE).cloned().unwrap_or_default(),
            cpus: noise.cpus,
            ..Launch::default()
        };
        for _ in 0..noise.processes {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            self.launch(&launch, &mut command)?;
        }
        Ok(())
    }

    /// Undoes everything now; what could not be undone, in words.
    #[must_use]
    pub fn undo(mut self) -> Vec<String> {
        self.end()
    }

    fn end(&mut self) -> Vec<String> {
        self.flood = None;
        for child in &mut self.children {
            // It has a process group of its own: where it has no control group, what it started goes so. Of
            // one that has ended the number may be another's by now.
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let (Ok(None), Some(group)) = (child.try_wait(), group) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            // One that has ended by itself is what was wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.children.clear();
        self.forwarder = None;
        self.journal.undo()
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        // What stays behind stands in the journal, for the next start.
        let _ = self.end();
    }
}

/// The processes below a process, as the kernel lists children by thread (`CONFIG_PROC_CHILDREN`).
fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = text.split_whitespace().filter_map(|child| child.parse().ok());
            let children: Vec<u32> = children.filter(|child| !found.contains(child)).collect();
            found.extend(&children);
            parents.extend(children);
        }
    }
    found
}

/// Undoes what killed runs left: what stands in the journals in `journals`, and folders whose journal went
/// when the machine was started again.
#[must_use]
pub fn sweep(journals: &Path) -> Swept {
    let mut swept = journal::sweep(journals);
    run_folder::sweep(Path::new(FOLDERS), journals, &mut swept);
    swept
}

/// Whether this process may make namespaces and groups.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether something cannot be made for want of a right, or because nothing can be.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Says what this process may not do before anything is made.
fn refuse(scenario: &Scenario, context: &Context) -> Result<(), String> {
    let global = scenario.global_settings();
    if !global.is_empty() && !context.allow_global {
        return Err(format!(
            "this changes settings of the whole machine ({}): it needs --allow-global",
            global.join(", ")
        ));
    }
    if !scenario.network.nodes().is_empty() && !is_root() {
        let text = "network namespaces can be made by root only; network = \"loopback\" needs none";
        return Err(text.to_owned());
    }
    Ok(())
}

/// The numbers of the disk that a folder is on: the whole disk, not its partition.
fn device_of(folder: &Path) -> Result<(u32, u32), String> {
    let explain = |error: io::Error| format!("disk of {}: {error}", folder.display());
    let device = fs::metadata(folder).map_err(explain)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !block.exists() {
        return Err(format!(
            "{} is not on a disk, so its writes cannot be bounded",
            folder.display()
        ));
    }
    if !block.join("partition").exists() {
        return Ok((major, minor));
    }
    let whole = fs::read_to_string(block.join("../dev")).map_err(explain)?;
    let numbers = whole
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    numbers.ok_or_else(|| format!("disk of {}: '{}' is no device", folder.display(), whole.trim()))
}

#[cfg(test)]
mod tests;

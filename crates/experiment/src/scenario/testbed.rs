//! Creates a scenario, starts programs in it, and undoes all of it on drop.
//!
//! Not for the choice of the programs, nor for their results.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use host::journal::ProcessIdentity;
use host::sandbox::cgroup::CgroupHierarchies;
use host::sandbox::launch::Launch;
use host::sandbox::{cgroup, namespace, tun};
use host::trusted_dir::TrustedDir;
use host::tuning::{ObservedValue, read_choice};
use record::control::NO_DEFAULTS;
use record::invalid_value;
use rustix::process::{Pid, Signal, kill_process_group};

use super::cgroups::{CgroupLimits, cgroup_setups};
use super::delay_link::{DelayLink, LinkDelay};
use super::errors::{ResourceError, TestbedError};
use super::flood::HalfOpenFlood;
use super::journal::{self, CreatedResource, Journal, RUN_DIRECTORIES, RUN_VARIABLE, SweepReport, run_name};
use super::network::{self, HALF_OPEN_ADDRESS, HALF_OPEN_PORT};
use super::plan::{NODES, NOISE_GROUP, Node, Scenario, WORKERS_GROUP, host_setting_path};
use super::{interfaces, run_directory, system_commands};

/// File of the limit of tracked connections, which applies to the complete machine.
const CONNTRACK_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// Error number for a process that does not exist.
const ESRCH: i32 = 3;

/// Parameters of a testbed besides its plan.
#[derive(Clone, Debug)]
pub struct TestbedContext {
    /// Directory of the journals ([`super::journal::journal_directory`]).
    pub journals: PathBuf,
    /// True if settings of the complete machine may be changed.
    pub allow_global: bool,
    /// Returns monotonic time, in nanoseconds.
    pub clock: fn() -> u64,
}

/// Scenario with everything that was created for it. It is undone on drop, or at the next start after
/// this process was killed ([`sweep`]).
///
/// Programs that it starts end with the thread that started them. That thread must therefore be the
/// one that waits for the run's end.
#[derive(Debug)]
pub struct Testbed {
    run: String,
    scenario: Scenario,
    journal: Journal,
    directory: PathBuf,
    cgroups: BTreeMap<String, Vec<PathBuf>>,
    children: Vec<Child>,
    delay_link: Option<DelayLink>,
    flood: Option<HalfOpenFlood>,
}

impl Testbed {
    /// Creates everything that `scenario` requires.
    ///
    /// # Errors
    /// The thing that could not be made, with the reason. Things made until then are undone.
    pub fn create(scenario: &Scenario, context: &TestbedContext) -> Result<Self, TestbedError> {
        check_permissions(scenario, context)?;
        let run = run_name();
        let journal = Journal::create(&context.journals, &run)?;
        let directory = Path::new(RUN_DIRECTORIES).join(&run);
        let mut testbed = Self {
            run,
            scenario: scenario.clone(),
            journal,
            directory,
            cgroups: BTreeMap::new(),
            children: Vec::new(),
            delay_link: None,
            flood: None,
        };
        // From here on, dropping the testbed undoes everything so far, also on `?`.
        testbed.record(CreatedResource::Directory { path: testbed.directory.clone() })?;
        let created = run_directory::create(Path::new(RUN_DIRECTORIES), &testbed.run);
        created.map_err(ResourceError::in_file(&testbed.directory))?;
        testbed.create_network(context)?;
        testbed.create_cgroups(&cgroup::read_hierarchies()?)?;
        testbed.start_noise()?;
        Ok(testbed)
    }

    /// Returns the prefix of all names in it.
    pub fn run(&self) -> &str {
        &self.run
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn address(&self, node: Node) -> &'static str {
        self.scenario.network.address(node)
    }

    /// Returns the file of a node's namespace. `None` on loopback.
    pub fn namespace(&self, node: Node) -> Option<PathBuf> {
        let nodes = self.scenario.network.nodes();
        nodes.contains(&node).then(|| namespace::netns_path(&format!("{}-{node}", self.run)))
    }

    /// Runs a closure in a node's namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn run_in_namespace<T: Send>(&self, node: Node, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        match self.namespace(node) {
            Some(path) => namespace::run_in_netns(&path, body),
            None => Ok(body()),
        }
    }

    /// Starts a program at a node. It ends with the testbed. The returned number is for [`Testbed::child`].
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&mut self, node: Node, command: &mut Command) -> Result<usize, TestbedError> {
        let launch = Launch {
            namespace: self.namespace(node),
            cgroups: self.cgroups.get(node.name()).cloned().unwrap_or_default(),
            cpus: self.scenario.pins.get(&node).cloned().unwrap_or_default(),
            nofile: self.scenario.descriptors.get(&node).copied(),
        };
        self.launch(&launch, command.env(NO_DEFAULTS, "1"))
    }

    /// Returns a started program by its number.
    pub fn child(&mut self, number: usize) -> Option<&mut Child> {
        self.children.get_mut(number)
    }

    fn launch(&mut self, launch: &Launch, command: &mut Command) -> Result<usize, TestbedError> {
        command.env(RUN_VARIABLE, &self.run);
        let child = launch.spawn(command).map_err(|source| TestbedError::NotStarted {
            program: command.get_program().display().to_string(),
            source,
        })?;
        let pid = i32::try_from(child.id()).unwrap_or(0);
        self.children.push(child);
        // A process cannot be noted before it exists, but its group was; and it ends with this
        // process.
        if let Some(process) = ProcessIdentity::of(pid) {
            self.record(CreatedResource::Process(process))?;
        }
        Ok(self.children.len() - 1)
    }

    /// Moves the descendants of a started program into the group with their quota.
    ///
    /// # Errors
    /// It has no descendants, or they cannot be moved.
    pub fn limit_workers(&mut self, number: usize) -> Result<(), TestbedError> {
        let Some(groups) = self.cgroups.get(WORKERS_GROUP) else { return Ok(()) };
        let pid = self.children.get(number).map_or(0, Child::id);
        let workers = descendants(pid);
        if workers.is_empty() {
            return Err(TestbedError::NoWorkers);
        }
        for group in groups {
            let file = group.join("cgroup.procs");
            for worker in &workers {
                match fs::write(&file, worker.to_string()) {
                    // A process that has ended meanwhile needs no quota.
                    Err(error) if error.raw_os_error() != Some(ESRCH) => {
                        return Err(ResourceError::in_file(&file)(error).into());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, made: CreatedResource) -> Result<(), TestbedError> {
        self.journal.record(made).map_err(|source| refused(format!("journal of {}", self.run), source))
    }

    fn create_network(&mut self, context: &TestbedContext) -> Result<(), TestbedError> {
        for &node in self.scenario.network.nodes() {
            let name = format!("{}-{node}", self.run);
            self.record(CreatedResource::Namespace { name: name.clone() })?;
            system_commands::run_command(&["ip".into(), "netns".into(), "add".into(), name], None, None)?;
        }
        self.start_delay_link(context.clock)?;
        for command in network::commands(&self.scenario, &self.run) {
            let namespace = command.node.and_then(|node| self.namespace(node));
            system_commands::run_command(&command.command, command.input.as_deref(), namespace)?;
        }
        for setting in network::settings(&self.scenario) {
            let name = &setting.name;
            let file = network::setting_path(name)
                .ok_or_else(|| invalid_value!("'{name}' is not a valid setting below net"))?;
            let written = self.run_in_namespace(setting.node, || fs::write(&file, &setting.value))?;
            written.map_err(|source| refused(format!("{file} at {}", setting.node), source))?;
        }
        interfaces::write(&self.scenario, |node| self.namespace(node))?;
        if let Some(max) = self.scenario.conntrack_max {
            self.set_global(Path::new(CONNTRACK_MAX), &max.to_string())?;
        }
        for (name, value) in &self.scenario.host_settings.clone() {
            // The file's parser rejected other names.
            let Some(path) = host_setting_path(name) else { continue };
            self.set_global(&path, value)?;
        }
        self.start_flood()
    }

    fn set_global(&mut self, path: &Path, value: &str) -> Result<(), TestbedError> {
        // Of a file that lists choices, the value is the chosen one.
        let before = match read_choice(path) {
            ObservedValue::Value(value) => value,
            ObservedValue::Absent => return Err(TestbedError::NoSetting(path.to_owned())),
            ObservedValue::NotObservable(reason) => return Err(TestbedError::UnreadableSetting(reason)),
        };
        self.record(CreatedResource::Setting { path: path.to_owned(), previous: before })?;
        Ok(fs::write(path, value).map_err(ResourceError::in_file(path))?)
    }

    fn start_delay_link(&mut self, clock: fn() -> u64) -> Result<(), TestbedError> {
        let Some(delay) = self.scenario.delay else { return Ok(()) };
        let make =
            |node: Node, peer: Node| self.run_in_namespace(node, || tun::create(&format!("to-{peer}")))?;
        let (near, far) = (delay.at.peer(), delay.at);
        let ends = [make(near, far)?, make(far, near)?];
        let link_delay = LinkDelay { delay_ns: delay.round_trip_ns / 2, jitter_ns: delay.jitter_ns };
        self.delay_link = Some(DelayLink::start(ends, link_delay, clock)?);
        Ok(())
    }

    fn start_flood(&mut self) -> Result<(), TestbedError> {
        let (Some(rate_per_s), Some(path)) = (self.scenario.half_open_per_s, self.namespace(Node::Client))
        else {
            return Ok(());
        };
        let address = |text: &str, port| -> Result<SocketAddr, TestbedError> {
            let ip = text.parse().map_err(|error| invalid_value!("{text}: {error}"))?;
            Ok(SocketAddr::new(ip, port))
        };
        let from = address(HALF_OPEN_ADDRESS, 0)?;
        let to = address(self.address(Node::Subject), HALF_OPEN_PORT)?;
        self.flood = Some(HalfOpenFlood::start(path, from, to, rate_per_s)?);
        Ok(())
    }

    fn create_cgroups(&mut self, hierarchies: &CgroupHierarchies) -> Result<(), TestbedError> {
        let is_root = is_root();
        for name in NODES.iter().map(|node| node.name()).chain([NOISE_GROUP, WORKERS_GROUP]) {
            let node = Node::from_name(name);
            let disk = match self.scenario.disk_bytes_per_s.filter(|_| name == "subject") {
                Some(bytes) => Some((bytes, disk_device(&self.directory)?)),
                None => None,
            };
            let is_workers = name == WORKERS_GROUP;
            if is_workers && self.scenario.workers_quota.is_none() {
                continue;
            }
            let cpu = match is_workers {
                true => self.scenario.workers_quota,
                false => node.and_then(|node| self.scenario.cpu_quotas.get(&node).copied()),
            };
            let memory = self.scenario.memory_bytes.filter(|_| name == "subject");
            let bounds = CgroupLimits { cpu, disk, memory };
            if !is_root && bounds == CgroupLimits::default() {
                continue;
            }
            let setups = cgroup_setups(hierarchies, &format!("{}-{name}", self.run), bounds)?;
            for group in setups {
                self.record(CreatedResource::Cgroup { path: group.path.clone() })?;
                match fs::create_dir(&group.path) {
                    // This is common in containers. The group has no limits, so the run continues
                    // without it.
                    Err(error) if bounds == CgroupLimits::default() && is_permission_error(&error) => {
                        continue;
                    }
                    made => made.map_err(ResourceError::in_file(&group.path))?,
                }
                for (file, value) in &group.settings {
                    let written = fs::write(group.path.join(file), value);
                    written.map_err(|source| {
                        refused(format!("{}: {file} = {value}", group.path.display()), source)
                    })?;
                }
                // Workers stay in the subject's group, which serves to find them; only the quota
                // has a separate group.
                if !is_workers || !group.settings.is_empty() {
                    self.cgroups.entry(name.to_owned()).or_default().push(group.path);
                }
            }
        }
        Ok(())
    }

    fn start_noise(&mut self) -> Result<(), TestbedError> {
        let Some(noise) = self.scenario.noise.clone() else { return Ok(()) };
        let launch = Launch {
            cgroups: self.cgroups.get(NOISE_GROUP).cloned().unwrap_or_default(),
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

    /// Undoes everything now. Returns descriptions of the things that could not be undone.
    #[must_use]
    pub fn undo(mut self) -> Vec<String> {
        self.tear_down()
    }

    fn tear_down(&mut self) -> Vec<String> {
        self.flood = None;
        for child in &mut self.children {
            // It has its own process group: without a control group, this kills its children. The
            // number of a process that has ended may belong to another one by now.
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            if let (Ok(None), Some(group)) = (child.try_wait(), group) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            // An error means that it has ended by itself, which is the goal.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.children.clear();
        self.delay_link = None;
        self.journal.undo()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // Things that are left are in the journal, for the next start.
        let _ = self.tear_down();
    }
}

/// Returns the descendants of a process, from the kernel's lists of children by thread
/// (`CONFIG_PROC_CHILDREN`).
fn descendants(pid: u32) -> Vec<u32> {
    let mut pids = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = text.split_whitespace().filter_map(|child| child.parse().ok());
            let children: Vec<u32> = children.filter(|child| !pids.contains(child)).collect();
            pids.extend(&children);
            parents.extend(children);
        }
    }
    pids
}

/// Undoes killed runs: the things in the journals of `journals`, and run directories whose journal
/// was lost in a reboot.
pub fn sweep(journals: &Path) -> SweepReport {
    let opened = TrustedDir::open(journals);
    let mut swept = match &opened {
        Ok(Some(directory)) => journal::sweep(directory),
        Ok(None) => SweepReport::default(),
        Err(error) => {
            return SweepReport { refused: vec![error.to_string()], ..SweepReport::default() };
        }
    };
    let journals = opened.as_ref().ok().and_then(Option::as_ref);
    run_directory::remove_stale(Path::new(RUN_DIRECTORIES), journals, &mut swept);
    swept
}

/// Returns whether this process may make namespaces and groups.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether an operation failed for lack of permission or on a read-only file system.
fn is_permission_error(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn refused(object: String, source: io::Error) -> TestbedError {
    ResourceError::Refused { object, source }.into()
}

/// Reports missing permissions before anything is made.
fn check_permissions(scenario: &Scenario, context: &TestbedContext) -> Result<(), TestbedError> {
    let global = scenario.global_settings();
    if !global.is_empty() && !context.allow_global {
        return Err(TestbedError::NotAllowed(global.join(", ")));
    }
    if !scenario.network.nodes().is_empty() && !is_root() {
        return Err(TestbedError::NotRoot);
    }
    Ok(())
}

/// Returns the numbers of the disk that a directory is on: the whole disk, not its partition.
fn disk_device(directory: &Path) -> Result<(u32, u32), TestbedError> {
    let explain = |source: io::Error| refused(format!("disk of {}", directory.display()), source);
    let device = fs::metadata(directory).map_err(explain)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let block = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    if !block.exists() {
        return Err(TestbedError::NotOnDisk(directory.to_owned()));
    }
    if !block.join("partition").exists() {
        return Ok((major, minor));
    }
    let disk_text = fs::read_to_string(block.join("../dev")).map_err(explain)?;
    let numbers = disk_text
        .trim()
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    numbers.ok_or_else(|| explain(io::Error::other(format!("'{}' is not a device", disk_text.trim()))))
}

#[cfg(test)]
mod tests;

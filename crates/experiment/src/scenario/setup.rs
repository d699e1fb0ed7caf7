//! Setup of one trial: a scenario, the programs in it, and the load. Converts text to values, and
//! reports all problems at once.
//!
//! Not for running it: see [`crate::trial`].

use std::collections::BTreeMap;

use record::document::Problems;
use record::document::table::TableValues;
use record::problem::InputProblem;
use toml::de::DeTable;

use super::extra::{self, ExtraProgram};
use super::fault_injection;
use super::keys::FILE;
use super::machines::{self, MachineSetup};
use super::plan::{
    Bandwidth, Delay, Loss, Network, Node, Noise, Packets, Queue, Scenario, Steering, host_setting_path,
};
use super::program::{ProgramSetup, read_program, split_command};
use super::quotas;
use super::read::{by_node, read_file, read_table};

const BURST_DEFAULT_BYTES: u64 = 64 << 10;
/// Default maximum waiting time of packets before a link.
const QUEUE_TIME_DEFAULT_NS: u64 = 50_000_000;
/// Default time that a load runs unrecorded before a trial.
const WARM_UP_DEFAULT_NS: u64 = 1_000_000_000;
/// Program that drives the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LoadTool {
    #[default]
    Weir,
    Wrk,
    Ab,
    /// h2load of nghttp2.
    H2load,
    /// The program h1load.
    H1load,
    Oha,
}

const TOOLS: [(LoadTool, &str); 6] = [
    (LoadTool::Weir, "weir"),
    (LoadTool::Wrk, "wrk"),
    (LoadTool::Ab, "ab"),
    (LoadTool::H2load, "h2load"),
    (LoadTool::H1load, "h1load"),
    (LoadTool::Oha, "oha"),
];

impl LoadTool {
    pub fn name(self) -> &'static str {
        TOOLS.iter().find(|(tool, _)| *tool == self).map_or("", |(_, name)| name)
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        TOOLS.iter().find(|(_, other)| *other == name).map(|(tool, _)| *tool)
    }
}

/// Everything that one trial runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabSetup {
    pub title: String,
    pub scenario: Scenario,
    /// Program under test.
    pub subject: ProgramSetup,
    /// Server behind it.
    pub origin: Option<ProgramSetup>,
    /// Additional programs, in the order in which they start.
    pub programs: Vec<ExtraProgram>,
    /// Programs on machines of a fleet, in place of all others; empty: the trial is of this machine.
    pub machines: Vec<MachineSetup>,
    /// Agents of a fleet that drive the load, in the form of `--agents`.
    pub agents: String,
    pub tool: LoadTool,
    /// Words after the driver's name (`weir load`, or another's), with placeholders.
    pub load: Vec<String>,
    /// True if the subject's functions are sampled under load.
    pub profile: bool,
    /// Calls of the subject to count (`allocations`, `malloc`, `futex`).
    pub calls: Option<String>,
    /// Time that the same load runs unrecorded before: the value in the file, or else the default
    /// of a single trial. An experiment without a value in its plan determines it.
    pub warm_up_ns: u64,
    /// Files of the run's directory, with placeholders.
    pub files: BTreeMap<String, String>,
}

impl LabSetup {
    /// Reads a file's text. `file` names it in problems.
    ///
    /// # Errors
    /// All problems of the file, in its order.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<InputProblem>> {
        let mut problems = Problems::default();
        let values = read_file(text, FILE, &mut problems);
        let setup = read_setup(&values, &mut problems);
        let problems = problems.into_input_problems(file, text);
        if problems.is_empty() { Ok(setup) } else { Err(problems) }
    }

    /// Returns whether the load has a fixed rate, according to the flags of its driver.
    pub fn has_rate(&self) -> bool {
        let flags: &[&str] = match self.tool {
            LoadTool::Weir => &["-R", "--rate"],
            LoadTool::H2load => &["--rps"],
            LoadTool::Oha => &["-q"],
            LoadTool::H1load => &["-R"],
            LoadTool::Wrk | LoadTool::Ab => &[],
        };
        let is_rate = |word: &String| {
            flags.iter().any(|flag| match flag.starts_with("--") {
                true => word == flag || word.starts_with(&format!("{flag}=")),
                false => word.starts_with(flag),
            })
        };
        self.load.iter().any(is_rate)
    }

    pub(crate) fn from_document(document: &DeTable<'_>, problems: &mut Problems) -> Self {
        read_setup(&read_table(document, FILE, problems), problems)
    }
}

fn read_setup(values: &TableValues, problems: &mut Problems) -> LabSetup {
    let scenario = values.table("scenario").map(|table| read_scenario(table, problems));
    let scenario = scenario.unwrap_or_default();
    let machines = machines::read_machines(values, problems);
    let (subject, origin) = subject_and_origin(values, scenario.network, problems);
    let extra = extra::read_programs(values.tables("programs"), scenario.network, problems);
    let load = values.table("load");
    let flags = load.map(|load| split_command(load, "flags", problems)).unwrap_or_default();
    let files = values.texts("files").cloned().unwrap_or_default();
    for name in files.keys().filter(|name| !is_file_name(name)) {
        let text = format!("'{name}' is not a valid file name: letters, digits, '.', '-' and '_'");
        problems.add_error(values.text_offset("files", name), text);
    }
    if scenario.network == Network::Pair && origin.is_some() {
        let text = "an origin requires `network = \"chain\"` or \"loopback\"";
        problems.add_error(origin_offset(values, Node::Origin), text);
    }
    LabSetup {
        title: values.text("title").unwrap_or_default().to_owned(),
        scenario,
        subject,
        origin,
        programs: extra,
        machines,
        agents: load.and_then(|load| load.text("agents")).unwrap_or("all").to_owned(),
        tool: load.and_then(|load| load.text("tool")).and_then(LoadTool::from_name).unwrap_or_default(),
        load: flags,
        profile: false,
        calls: None,
        warm_up_ns: load.and_then(|load| load.integer("warm-up")).unwrap_or(WARM_UP_DEFAULT_NS),
        files,
    }
}

/// Reads the program under test and the one behind it: each from its table, or from the fault
/// injection that replaces it.
fn subject_and_origin(
    values: &TableValues,
    network: Network,
    problems: &mut Problems,
) -> (ProgramSetup, Option<ProgramSetup>) {
    let table = values.table("scenario").and_then(|table| table.table("fault"));
    let mut faulty = table.map(|table| fault_injection::faulty_program(table, network, problems));
    let mut at = |node: Node| {
        let written = values.table(node.name()).map(|table| read_program(table, problems));
        let faulty = faulty.take_if(|(at, _)| *at == node);
        if faulty.is_some() && written.is_some() {
            let text = format!("'scenario.fault' replaces [{node}]: remove one of them");
            problems.add_error(fault_injection_offset(values), text);
        }
        written.or_else(|| faulty.map(|(_, program)| program))
    };
    let (subject, origin) = (at(Node::Subject), at(Node::Origin));
    if subject.is_none() && values.tables("machine").is_empty() {
        let text = "missing key 'subject' (a table): add [subject], or [scenario.fault] to replace it";
        problems.add_error(values.offset, text);
    }
    (subject.unwrap_or_default(), origin)
}

/// Returns the byte offset of the origin, or of the fault injection in its place.
fn origin_offset(values: &TableValues, node: Node) -> usize {
    match values.table(node.name()) {
        Some(_) => values.offset_of(node.name()),
        None => fault_injection_offset(values),
    }
}

fn fault_injection_offset(values: &TableValues) -> usize {
    values.table("scenario").map_or(values.offset, |scenario| scenario.offset_of("fault"))
}

fn is_file_name(name: &str) -> bool {
    let fits = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
    !name.starts_with('.') && name.chars().all(fits) && !name.is_empty()
}

fn read_scenario(values: &TableValues, problems: &mut Problems) -> Scenario {
    let network = match values.text("network") {
        Some("loopback") => Network::Loopback,
        Some("chain") => Network::Chain,
        _ => Network::Pair,
    };
    let scenario = Scenario {
        network,
        bandwidth: values.table("bandwidth").map(|table| read_bandwidth(table, problems)),
        loss: values.table("loss").map(|table| Loss {
            fraction: table.decimal("fraction").unwrap_or_default(),
            at: node_or(table, Node::Client),
        }),
        delay: values.table("delay").map(|table| Delay {
            round_trip_ns: table.integer("round-trip").unwrap_or_default(),
            jitter_ns: table.integer("jitter").unwrap_or_default(),
            at: node_or(table, Node::Subject),
        }),
        packets: values.table("packets").map(|table| Packets {
            rate_per_s: table.integer("per-second").unwrap_or_default(),
            drop: table.is_set("drop"),
            at: node_or(table, Node::Subject),
        }),
        cpu_quotas: quotas::read_quotas(values, problems),
        workers_quota: quotas::read_workers_quota(values, problems),
        disk_bytes_per_s: values.integer("disk-quota"),
        memory_bytes: values.integer("memory-max"),
        pins: by_node(values, "pin", |table, name| table.cpus(name).map(<[u32]>::to_vec)),
        noise: values.table("noise").map(|table| Noise {
            processes: table.integer("processes").and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
            cpus: table.cpus("cpus").unwrap_or_default().to_vec(),
        }),
        descriptors: by_node(values, "descriptors", |table, name| table.integer(name)),
        ports: values.table("ports").and_then(|table| read_ports(table, problems)),
        sysctls: by_node(values, "sysctl", |table, name| table.texts(name).cloned()),
        interface_settings: by_node(values, "interface", |table, name| table.texts(name).cloned()),
        steering: values.table("rps").map(|table| Steering {
            at: node_or(table, Node::Subject),
            cpus: table.cpus("cpus").unwrap_or_default().to_vec(),
        }),
        receive_buffer_bytes: values.table("slow-reader").and_then(|table| table.integer("receive-buffer")),
        half_open_per_s: values.table("drop-syn-ack").and_then(|table| table.integer("per-second")),
        host_settings: values.texts("host-settings").cloned().unwrap_or_default(),
        conntrack_max: values.integer("conntrack-max"),
    };
    for name in scenario.host_settings.keys().filter(|name| host_setting_path(name).is_none()) {
        let text = format!(
            "'{name}' is no setting that an experiment may change: a sysctl, or a file below {}",
            host::tuning::setting_directories()
        );
        problems.add_error(values.text_offset("host-settings", name), text);
    }
    check_dependencies(&scenario, values, problems);
    super::interfaces::check(&scenario, values, problems);
    scenario
}

/// Checks that each key has the other keys that it depends on.
fn check_dependencies(scenario: &Scenario, values: &TableValues, problems: &mut Problems) {
    const NEEDS_NETWORK: &[&str] = &[
        "bandwidth",
        "loss",
        "delay",
        "packets",
        "ports",
        "sysctl",
        "interface",
        "rps",
        "slow-reader",
        "drop-syn-ack",
        "conntrack-max",
    ];
    if scenario.network == Network::Loopback {
        for key in NEEDS_NETWORK.iter().filter(|key| values.offset_of(key) != values.offset) {
            let text = format!("'{key}' needs namespaces: network = \"pair\" or \"chain\"");
            problems.add_error(values.offset_of(key), text);
        }
    }
    if let (Some(bandwidth), Some(packets)) = (&scenario.bandwidth, &scenario.packets)
        && bandwidth.at == packets.at
        && !packets.drop
    {
        problems.add_error(values.offset_of("packets"), "'bandwidth' already limits the same sender");
    }
    let nodes = scenario.network.nodes();
    let named = [
        ("bandwidth", scenario.bandwidth.map(|it| it.at)),
        ("loss", scenario.loss.map(|it| it.at)),
        ("delay", scenario.delay.map(|it| it.at)),
        ("packets", scenario.packets.map(|it| it.at)),
        ("rps", scenario.steering.as_ref().map(|it| it.at)),
        ("sysctl", scenario.sysctls.keys().next_back().copied()),
        ("interface", scenario.interface_settings.keys().next_back().copied()),
    ];
    for (key, node) in named {
        if let Some(node) = node
            && !nodes.is_empty()
            && !nodes.contains(&node)
        {
            let text = format!("there is no {node} in this network: network = \"chain\" has one");
            problems.add_error(values.offset_of(key), text);
        }
    }
}

fn node_or(values: &TableValues, default: Node) -> Node {
    values.text("at").and_then(Node::from_name).unwrap_or(default)
}

fn read_bandwidth(values: &TableValues, problems: &mut Problems) -> Bandwidth {
    let queue = match (values.integer("latency"), values.integer("limit")) {
        (Some(_), Some(_)) => {
            problems.add_error(values.offset_of("limit"), "give either 'latency' or 'limit'");
            Queue::Time(QUEUE_TIME_DEFAULT_NS)
        }
        (_, Some(bytes)) => Queue::Bytes(bytes),
        (time, None) => Queue::Time(time.unwrap_or(QUEUE_TIME_DEFAULT_NS)),
    };
    Bandwidth {
        rate_bits_per_s: values.integer("rate").unwrap_or_default(),
        burst_bytes: values.integer("burst").unwrap_or(BURST_DEFAULT_BYTES),
        queue,
        at: node_or(values, Node::Subject),
    }
}

fn read_ports(values: &TableValues, problems: &mut Problems) -> Option<(u16, u16)> {
    let port = |key| values.integer(key).and_then(|port| u16::try_from(port).ok());
    let (first, last) = (port("first")?, port("last")?);
    if first > last {
        problems.add_error(values.offset_of("last"), "the last port is below the first");
    }
    Some((first, last))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks the problems in their order. Each expected one is a location and the words, separated
    /// by spaces, that the text behind the location has.
    pub(crate) fn assert_problems(problems: &[String], expected: &[&str]) {
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            let (location, words) = expected.split_once(' ').unwrap_or((*expected, ""));
            let text = problem.strip_prefix(location).unwrap_or_else(|| panic!("{problem}\n{expected}"));
            assert!(words.split(' ').all(|word| text.contains(word)), "{problem}\n{expected}");
        }
    }

    const FULL_FILE: &str = r#"
title = "everything"
[scenario]
network = "chain"
bandwidth = { rate = "50mbit", limit = "4m" }
loss = { fraction = "2%" }
delay = { round-trip = "40ms", jitter = "1ms", at = "origin" }
packets = { per-second = 1000, drop = true }
cpu-quota = { subject = 0.3, period = "50ms" }
disk-quota = "2m"
pin = { client = "0", subject = 1 }
noise = { processes = 2, cpus = "1" }
descriptors = { subject = 60 }
ports = { first = 40000, last = 40099 }
sysctl.client = { ipv4.tcp_rmem = "4096 4096 4096" }
interface.client = { gro = "on", tx_queue_len = 500 }
rps = { cpus = "1" }
slow-reader = { receive-buffer = "4k" }
drop-syn-ack = { per-second = 500 }
conntrack-max = 50
host-settings = { vm.swappiness = "10", "/sys/kernel/mm/transparent_hugepage/enabled" = "never" }
[subject]
command = "{weir} serve --listen '{subject}:8000'"
ready = "{subject}:8000"
[origin]
command = "x"
ready = "1.2.3.4:5"
[load]
flags = "-c 10 http://{subject}:8000/"
warm-up = "500ms"
[files]
"nginx.conf" = "daemon off;"
"#;

    #[test]
    fn a_rate_is_recognized_by_the_flags_of_its_driver() {
        let setup = |tool: LoadTool, flags: &str| LabSetup {
            tool,
            load: flags.split(' ').map(str::to_owned).collect(),
            ..LabSetup::default()
        };
        for (tool, flags, expected) in [
            (LoadTool::Weir, "-c 1 -R 100", true),
            (LoadTool::Weir, "-c 1 --rate=100", true),
            (LoadTool::Weir, "-c 1 u", false),
            (LoadTool::Wrk, "-R 100", false),
            (LoadTool::Oha, "-q 100", true),
            (LoadTool::H2load, "--rps=5", true),
            (LoadTool::Ab, "-n 1", false),
        ] {
            assert_eq!(setup(tool, flags).has_rate(), expected, "{flags}");
        }
    }

    #[test]
    fn a_full_file_is_read() {
        let experiment = LabSetup::parse("a.toml", FULL_FILE).unwrap();
        let scenario = &experiment.scenario;
        assert_eq!(scenario.network, Network::Chain);
        assert_eq!(scenario.bandwidth.unwrap().queue, Queue::Bytes(4 << 20));
        assert_eq!(scenario.delay.unwrap().round_trip_ns, 40_000_000);
        assert_eq!(scenario.cpu_quotas[&Node::Subject].period_ns, 50_000_000);
        assert_eq!(scenario.pins[&Node::Subject], [1]);
        assert_eq!(scenario.sysctls[&Node::Client]["ipv4.tcp_rmem"], "4096 4096 4096");
        assert_eq!(experiment.subject.command[2..], ["--listen", "{subject}:8000"]);
        assert_eq!(experiment.warm_up_ns, 500_000_000);
        let global = [
            "net.netfilter.nf_conntrack_max",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "vm.swappiness",
        ];
        assert_eq!(scenario.global_settings(), global);
    }

    #[test]
    fn all_problems_are_reported_at_once_with_their_positions() {
        let text = "[scenario]\nbandwith = 3\nloss = { fraction = \"x\", at = \"moon\" }\n\
             cpu-quota = { subject = -1 }\nports = { first = 9000, last = 8000 }\n\
             [subject]\ncommand = \"a 'b\"\nready = \"1.2.3.4:5\"\n";
        let problems = LabSetup::parse("a.toml", text).unwrap_err();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a.toml:1:1: 'load'",
            "a.toml:2:1: 'scenario.bandwith'",
            "a.toml:3:21: 'scenario.loss.fraction'",
            "a.toml:3:31: 'scenario.loss.at' client subject origin",
            "a.toml:4:25: 'scenario.cpu-quota.subject' 0",
            "a.toml:5:25: port",
            "a.toml:7:1: 'command'",
        ];
        assert_problems(&texts, &expected);
    }

    #[test]
    fn conflicting_keys_are_reported() {
        let rest = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\n[load]\nflags = \"x\"\n";
        let problems = |scenario: &str| {
            let text = format!("[scenario]\n{scenario}\n{rest}");
            let problems = LabSetup::parse("a", &text).err().unwrap_or_default();
            problems.into_iter().map(|problem| problem.text).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(problems(""), "");
        assert!(problems("network = \"loopback\"\nloss.fraction = 0.1").contains("network = \"pair\""));
        assert!(problems("loss = { fraction = 0.1, at = \"origin\" }").contains("origin"));
        assert!(problems("cpu-quota = { subject = 0.5, period = \"2s\" }").contains("1ms to 1s"));
        let files = "host-settings = { \"/etc/passwd\" = \"x\", \"/sys/../etc/x\" = \"y\" }";
        assert_eq!(problems(files).matches("is no setting that an experiment may change").count(), 2);
        let both = "bandwidth.rate = \"1mbit\"\npackets.per-second = 5";
        assert!(problems(both).contains("'bandwidth'"));
        let queue = "bandwidth = { rate = \"1mbit\", limit = \"1k\", latency = \"1ms\" }";
        assert!(problems(queue).contains("'latency'") && problems(queue).contains("'limit'"));
    }

    #[test]
    fn a_load_has_its_tool_and_a_program_its_variables() {
        let text = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\nenv.LD_PRELOAD = \"x.so\"\n\
                    env.MALLOC_ARENA_MAX = 1\n[load]\ntool = \"wrk\"\nflags = \"x\"\n\
                    warm-up = \"auto\"\n";
        let setup = LabSetup::parse("a", text).unwrap();
        assert_eq!((setup.tool, setup.warm_up_ns), (LoadTool::Wrk, WARM_UP_DEFAULT_NS));
        assert_eq!(setup.subject.env["LD_PRELOAD"], "x.so");
        assert_eq!(setup.subject.env["MALLOC_ARENA_MAX"], "1");
        let wrong = text.replace("LD_PRELOAD", "\"LD PRELOAD\"").replace("wrk", "work");
        let problems = LabSetup::parse("a", &wrong).unwrap_err();
        assert!(problems[0].text.contains("'LD PRELOAD'"), "{problems:?}");
        assert_eq!(problems[1].location, "a:7:8");
        assert!(TOOLS.iter().all(|(_, name)| problems[1].text.contains(name)), "{problems:?}");
        for (tool, name) in TOOLS {
            assert_eq!((tool.name(), LoadTool::from_name(name)), (name, Some(tool)));
        }
    }

    #[test]
    fn a_program_may_be_ready_later_and_by_more_than_a_connection() {
        let text = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\nready-path = \"/health?x={port}\"\n\
                    ready-command = \"sh -c 'test -e {dir}/up'\"\nready-timeout = \"2m\"\n\
                    [load]\nflags = \"x\"\n";
        let subject = LabSetup::parse("a", text).unwrap().subject;
        assert_eq!((&*subject.ready, &*subject.ready_path), ("1.2.3.4:5", "/health?x={port}"));
        assert_eq!(subject.ready_command, ["sh", "-c", "test -e {dir}/up"]);
        assert_eq!(subject.ready_timeout_ns, Some(120_000_000_000));
        let wrong = text.replace("\"/health", "\"health").replace("2m", "11m").replace("sh -c", "'");
        let problems = LabSetup::parse("a", &wrong).unwrap_err();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = ["a:4:1: 'ready-path'", "a:5:1: 'ready-command'", "a:6:1: 'ready-timeout' 10"];
        assert_problems(&texts, &expected);
    }

    #[test]
    fn a_program_is_ready_at_an_address_with_its_port() {
        let parse_ready = |ready: &str| {
            let text = format!(
                "[subject]\ncommand = \"a\"\nready = \"{ready}\"\n[load]\nflags = \"x\"\n\
                 [files]\n\"a.conf\" = \"x\"\n\"a/b\" = \"y\"\n.hidden = 1\n"
            );
            let problems = LabSetup::parse("a", &text.replace(".hidden", "\".hidden\"")).unwrap_err();
            problems.iter().map(|problem| problem.location.clone()).collect::<Vec<_>>()
        };
        // Problems with file names have their positions.
        let names = ["a:8:1", "a:9:1"];
        for right in ["{subject}:{port}", "1.2.3.4:80", "[::1]:80", "http://{origin}:8000/x", "{later}"] {
            assert_eq!(parse_ready(right), names, "{right}");
        }
        for wrong in ["{subject}", "{subject}:http", "localhost:80", "8000", "", "{subject}:70000"] {
            assert_eq!(parse_ready(wrong), ["a:3:1", "a:8:1", "a:9:1"], "{wrong}");
        }
    }

    #[test]
    fn the_keys_of_experiments_are_distinguished_from_unknown_keys() {
        let text = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\n[load]\nflag = \"x\"\n[arms.a]\n";
        let problems = LabSetup::parse("a", text).unwrap_err();
        let texts: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        assert!(texts[0].contains("'load.flags'"), "{texts:?}");
        assert!(texts[1].contains("'load.flag'") && texts[1].contains("'flags'"), "{texts:?}");
        assert!(texts[2].contains("lab run"), "{texts:?}");
    }

    #[test]
    fn invalid_syntax_is_reported_with_its_position() {
        let problems = LabSetup::parse("a.toml", "[scenario\nx = ").unwrap_err();
        assert!(problems.iter().all(|problem| problem.location.starts_with("a.toml:")), "{problems:?}");
    }
}

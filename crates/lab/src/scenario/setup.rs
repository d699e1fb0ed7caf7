//! What one trial runs: a scenario, the programs in it, and the load; text to values, with every problem
//! at once.
//!
//! Not for running it: that is [`crate::trial`]'s.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use record::problem::Problem;
use toml::de::DeTable;

use super::extra::{self, ExtraProgram};
use super::illness;
use super::keys::FILE;
use super::placeholders::filled;
use super::plan::{
    Bandwidth, CpuQuota, Delay, Loss, NODES, Network, Node, Noise, Packets, Queue, Scenario,
    Steering,
};
use super::programs::words;
use super::read::{Problems, Values, read, table};

/// The length of a quota's period, where none is given.
const PERIOD_NS: u64 = 100_000_000;
/// What may go at once over a link, where nothing else is given.
const BURST_BYTES: u64 = 64 << 10;
/// How long packets may wait before a link, where nothing else is given.
const QUEUE_NS: u64 = 50_000_000;
/// How long a load runs unrecorded before, where nothing else is given.
const WARM_UP_NS: u64 = 1_000_000_000;
/// How long a program may take to be ready, where nothing else is given.
pub const READY_WITHIN_NS: u64 = 15_000_000_000;
/// The longest time that may be given for it.
const READY_WITHIN_NS_MAX: u64 = 600_000_000_000;
/// Groups take no quota below this share of a processor.
const QUOTA_CPUS_MIN: f64 = 0.01;

/// A program and how it is known to be ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its words, with placeholders.
    pub command: Vec<String>,
    /// The address that takes connections once it is ready, with placeholders.
    pub ready: String,
    /// What it has to answer besides, by HTTP, with placeholders; empty: nothing.
    pub ready_path: String,
    /// The words of a command that has to succeed besides, with placeholders; empty: none.
    pub ready_command: Vec<String>,
    /// How long it may take until then; absent: [`READY_WITHIN_NS`].
    pub ready_within_ns: Option<u64>,
    /// Variables added to its environment, with placeholders in the values.
    pub env: BTreeMap<String, String>,
    /// The words of a command that runs to its end before any program starts, with placeholders; empty:
    /// none.
    pub build: Vec<String>,
}

/// Which program drives the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tool {
    /// `weir load`.
    #[default]
    Weir,
    /// wrk.
    Wrk,
    /// ApacheBench.
    Ab,
    /// nghttp2's h2load.
    H2load,
    /// h1load.
    H1load,
    /// oha.
    Oha,
}

/// All of them, by the names of their programs.
const TOOLS: [(Tool, &str); 6] = [
    (Tool::Weir, "weir"),
    (Tool::Wrk, "wrk"),
    (Tool::Ab, "ab"),
    (Tool::H2load, "h2load"),
    (Tool::H1load, "h1load"),
    (Tool::Oha, "oha"),
];

impl Tool {
    /// Its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        TOOLS.iter().find(|(tool, _)| *tool == self).map_or("", |(_, name)| name)
    }

    /// The tool of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TOOLS.iter().find(|(_, other)| *other == name).map(|(tool, _)| *tool)
    }
}

/// What one trial runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setup {
    /// What it shows.
    pub title: String,
    /// What is made around the programs.
    pub scenario: Scenario,
    /// The program under test.
    pub subject: Program,
    /// A server behind it.
    pub origin: Option<Program>,
    /// Programs besides, in the order in which they start.
    pub programs: Vec<ExtraProgram>,
    /// What drives the load.
    pub tool: Tool,
    /// What stands behind the driver's name (`weir load`, or another's), with placeholders.
    pub load: Vec<String>,
    /// Whether the subject's functions are sampled while it is loaded.
    pub profile: bool,
    /// What calls of the subject are counted (`allocations`, `malloc`, `futex`).
    pub calls: Option<String>,
    /// How long the same load runs unrecorded before: what the file says, or else what a single trial
    /// takes. An experiment whose plan has none finds it out.
    pub warm_up_ns: u64,
    /// Files of the run's folder, with placeholders.
    pub files: BTreeMap<String, String>,
}

impl Setup {
    /// Reads a file's text. `file` names it in problems.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::default();
        let values = read(text, FILE, &mut problems);
        let setup = build(&values, &mut problems);
        let problems = problems.placed(file, text);
        if problems.is_empty() { Ok(setup) } else { Err(problems) }
    }

    /// Whether the load keeps to a rate of its own, by the flags of what drives it.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        let flags: &[&str] = match self.tool {
            Tool::Weir => &["-R", "--rate"],
            Tool::H2load => &["--rps"],
            Tool::Oha => &["-q"],
            Tool::H1load => &["-R"],
            Tool::Wrk | Tool::Ab => &[],
        };
        let is_rate = |word: &String| {
            flags.iter().any(|flag| match flag.starts_with("--") {
                true => word == flag || word.starts_with(&format!("{flag}=")),
                false => word.starts_with(flag),
            })
        };
        self.load.iter().any(is_rate)
    }

    /// Reads the tables of a file.
    pub(crate) fn of(document: &DeTable<'_>, problems: &mut Problems) -> Self {
        build(&table(document, FILE, problems), problems)
    }
}

fn build(values: &Values, problems: &mut Problems) -> Setup {
    let scenario = values.table("scenario").map(|table| scenario(table, problems));
    let scenario = scenario.unwrap_or_default();
    let (subject, origin) = programs(values, scenario.network, problems);
    let extra = extra::programs(values.each("programs"), scenario.network, problems);
    let load = values.table("load");
    let flags = load.map(|load| split(load, "flags", problems)).unwrap_or_default();
    let files = values.texts("files").cloned().unwrap_or_default();
    for name in files.keys().filter(|name| !is_file_name(name)) {
        let text = format!("'{name}' is no name of a file: letters, digits, '.', '-' and '_'");
        problems.add(values.place_of("files", name), text);
    }
    if scenario.network == Network::Pair && origin.is_some() {
        let text = "an origin needs `network = \"chain\"` or \"loopback\"";
        problems.add(place_of(values, Node::Origin), text);
    }
    Setup {
        title: values.text("title").unwrap_or_default().to_owned(),
        scenario,
        subject,
        origin,
        programs: extra,
        tool: load.and_then(|load| load.text("tool")).and_then(Tool::named).unwrap_or_default(),
        load: flags,
        profile: false,
        calls: None,
        warm_up_ns: load.and_then(|load| load.whole("warm-up")).unwrap_or(WARM_UP_NS),
        files,
    }
}

/// The program under test and the one behind it: each as its table says, or as the illness that takes its
/// place.
fn programs(
    values: &Values,
    network: Network,
    problems: &mut Problems,
) -> (Program, Option<Program>) {
    let table = values.table("scenario").and_then(|table| table.table("illness"));
    let mut ill = table.map(|table| illness::program(table, network, problems));
    let mut at = |node: Node| {
        let written = values.table(node.name()).map(|table| program(table, problems));
        let ill = ill.take_if(|(at, _)| *at == node);
        if ill.is_some() && written.is_some() {
            let text =
                format!("'scenario.illness' takes the place of [{node}]: leave one of them out");
            problems.add(place_of_illness(values), text);
        }
        written.or_else(|| ill.map(|(_, program)| program))
    };
    let (subject, origin) = (at(Node::Subject), at(Node::Origin));
    if subject.is_none() {
        let text = "'subject' is missing: a table, or an illness in its place ('scenario.illness')";
        problems.add(values.at, text);
    }
    (subject.unwrap_or_default(), origin)
}

/// Where the origin, or the illness in its place, stands.
fn place_of(values: &Values, node: Node) -> usize {
    match values.table(node.name()) {
        Some(_) => values.place(node.name()),
        None => place_of_illness(values),
    }
}

fn place_of_illness(values: &Values) -> usize {
    values.table("scenario").map_or(values.at, |scenario| scenario.place("illness"))
}

fn is_file_name(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || ".-_".contains(one);
    !name.starts_with('.') && name.chars().all(fits) && !name.is_empty()
}

pub(super) fn program(values: &Values, problems: &mut Problems) -> Program {
    let env = values.texts("env").cloned().unwrap_or_default();
    for name in env.keys().filter(|name| !is_variable(name)) {
        let text = format!("'{name}' is no name of a variable: letters, digits and '_'");
        problems.add(values.place_of("env", name), text);
    }
    let ready_path = values.text("ready-path").unwrap_or_default().to_owned();
    if values.text("ready-path").is_some() && !is_path(&ready_path) {
        let text = "'ready-path' is a path: it begins with '/', and has no blanks";
        problems.add(values.place("ready-path"), text);
    }
    let ready_within_ns = values.whole("ready-within");
    if ready_within_ns.is_some_and(|ns| !(1..=READY_WITHIN_NS_MAX).contains(&ns)) {
        let text = "'ready-within' is above 0 and at most 10 minutes (600s)";
        problems.add(values.place("ready-within"), text);
    }
    let ready = values.text("ready").unwrap_or_default().to_owned();
    if values.text("ready").is_some() && !is_address(&ready) {
        let text = format!(
            "'ready' is an address with its port ('{{subject}}:8000'), and '{ready}' is none"
        );
        problems.add(values.place("ready"), text);
    }
    Program {
        command: split(values, "command", problems),
        ready,
        ready_path,
        ready_command: split(values, "ready-command", problems),
        ready_within_ns,
        env,
        build: split(values, "build", problems),
    }
}

/// Whether connections can be made to it, once a trial has filled it in; what waits for a parameter may be.
fn is_address(text: &str) -> bool {
    let value = |name: &str| match name {
        "port" => Some("80"),
        "subject" | "origin" | "client" => Some("127.0.0.1"),
        _ => None,
    };
    let filled = filled(text, value);
    filled.contains('{') || authority(&filled).parse::<SocketAddr>().is_ok()
}

/// `127.0.0.1:80` of a URL or of itself.
pub(crate) fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or(rest)
}

/// Whether it can be asked for: what stands in the line of a request.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.chars().all(|one| one.is_ascii_graphic())
}

/// As POSIX has names of variables.
fn is_variable(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_alphanumeric() || one == '_';
    name.chars().all(fits)
        && !name.starts_with(|one: char| one.is_ascii_digit())
        && !name.is_empty()
}

fn split(values: &Values, key: &str, problems: &mut Problems) -> Vec<String> {
    let Some(text) = values.text(key) else { return Vec::new() };
    match words(text) {
        Some(words) if !words.is_empty() => words,
        Some(_) => {
            problems.add(values.place(key), format!("'{key}' is empty"));
            Vec::new()
        }
        None => {
            problems
                .add(values.place(key), format!("'{key}' has a quotation mark without its other"));
            Vec::new()
        }
    }
}

fn scenario(values: &Values, problems: &mut Problems) -> Scenario {
    let network = match values.text("network") {
        Some("loopback") => Network::Loopback,
        Some("chain") => Network::Chain,
        _ => Network::Pair,
    };
    let scenario = Scenario {
        network,
        bandwidth: values.table("bandwidth").map(|table| bandwidth(table, problems)),
        loss: values.table("loss").map(|table| Loss {
            share: table.decimal("share").unwrap_or_default(),
            at: node(table, Node::Client),
        }),
        delay: values.table("delay").map(|table| Delay {
            round_trip_ns: table.whole("round-trip").unwrap_or_default(),
            jitter_ns: table.whole("jitter").unwrap_or_default(),
            at: node(table, Node::Subject),
        }),
        packets: values.table("packets").map(|table| Packets {
            rate_per_s: table.whole("per-second").unwrap_or_default(),
            drop: table.is_set("drop"),
            at: node(table, Node::Subject),
        }),
        cpu_quotas: quotas(values, problems),
        workers_quota: workers_quota(values, problems),
        disk_bytes_per_s: values.whole("disk-quota"),
        memory_bytes: values.whole("memory-max"),
        pins: by_node(values, "pin", |table, name| table.cpus(name).map(<[u32]>::to_vec)),
        noise: values.table("noise").map(|table| Noise {
            processes: table.whole("processes").and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
            cpus: table.cpus("cpus").unwrap_or_default().to_vec(),
        }),
        descriptors: by_node(values, "descriptors", |table, name| table.whole(name)),
        ports: values.table("ports").and_then(|table| ports(table, problems)),
        sysctls: by_node(values, "sysctl", |table, name| table.texts(name).cloned()),
        steering: values.table("rps").map(|table| Steering {
            at: node(table, Node::Subject),
            cpus: table.cpus("cpus").unwrap_or_default().to_vec(),
        }),
        receive_buffer_bytes: values
            .table("slow-reader")
            .and_then(|table| table.whole("receive-buffer")),
        half_open_per_s: values.table("drop-syn-ack").and_then(|table| table.whole("per-second")),
        conntrack_max: values.whole("conntrack-max"),
    };
    check(&scenario, values, problems);
    scenario
}

/// What needs something else to make sense.
fn check(scenario: &Scenario, values: &Values, problems: &mut Problems) {
    const OF_A_NETWORK: &[&str] = &[
        "bandwidth",
        "loss",
        "delay",
        "packets",
        "ports",
        "sysctl",
        "rps",
        "slow-reader",
        "drop-syn-ack",
        "conntrack-max",
    ];
    if scenario.network == Network::Loopback {
        for key in OF_A_NETWORK.iter().filter(|key| values.place(key) != values.at) {
            let text = format!("'{key}' needs namespaces: network = \"pair\" or \"chain\"");
            problems.add(values.place(key), text);
        }
    }
    if let (Some(bandwidth), Some(packets)) = (&scenario.bandwidth, &scenario.packets)
        && bandwidth.at == packets.at
        && !packets.drop
    {
        problems.add(values.place("packets"), "the same sending is bounded by 'bandwidth' already");
    }
    let nodes = scenario.network.nodes();
    let named = [
        ("bandwidth", scenario.bandwidth.map(|it| it.at)),
        ("loss", scenario.loss.map(|it| it.at)),
        ("delay", scenario.delay.map(|it| it.at)),
        ("packets", scenario.packets.map(|it| it.at)),
        ("rps", scenario.steering.as_ref().map(|it| it.at)),
        ("sysctl", scenario.sysctls.keys().next_back().copied()),
    ];
    for (key, node) in named {
        if let Some(node) = node
            && !nodes.is_empty()
            && !nodes.contains(&node)
        {
            let text = format!("there is no {node} in this network: network = \"chain\" has one");
            problems.add(values.place(key), text);
        }
    }
}

fn node(values: &Values, default: Node) -> Node {
    values.text("at").and_then(Node::named).unwrap_or(default)
}

fn bandwidth(values: &Values, problems: &mut Problems) -> Bandwidth {
    let queue = match (values.whole("latency"), values.whole("limit")) {
        (Some(_), Some(_)) => {
            problems.add(values.place("limit"), "give either 'latency' or 'limit'");
            Queue::Time(QUEUE_NS)
        }
        (_, Some(bytes)) => Queue::Bytes(bytes),
        (time, None) => Queue::Time(time.unwrap_or(QUEUE_NS)),
    };
    Bandwidth {
        rate_bits_per_s: values.whole("rate").unwrap_or_default(),
        burst_bytes: values.whole("burst").unwrap_or(BURST_BYTES),
        queue,
        at: node(values, Node::Subject),
    }
}

fn quotas(values: &Values, problems: &mut Problems) -> BTreeMap<Node, CpuQuota> {
    let quotas = by_node(values, "cpu-quota", |table, name| {
        let period_ns = table.whole("period").unwrap_or(PERIOD_NS);
        table.decimal(name).map(|cpus| CpuQuota { cpus, period_ns })
    });
    check_quotas(quotas.values(), values, problems);
    quotas
}

fn workers_quota(values: &Values, problems: &mut Problems) -> Option<CpuQuota> {
    let table = values.table("cpu-quota")?;
    let period_ns = table.whole("period").unwrap_or(PERIOD_NS);
    let quota = CpuQuota { cpus: table.decimal("workers")?, period_ns };
    check_quotas([&quota], values, problems);
    Some(quota)
}

fn check_quotas<'a>(
    quotas: impl IntoIterator<Item = &'a CpuQuota>,
    values: &Values,
    problems: &mut Problems,
) {
    let fits = |quota: &CpuQuota| {
        // What the kernel takes: periods of 1 ms to 1 s, and at least 1 ms in each.
        let ms = 1_000_000..=1_000_000_000;
        ms.contains(&quota.period_ns)
            && quota.cpus >= QUOTA_CPUS_MIN
            && quota.cpus * quota.period_ns as f64 >= 1e6
    };
    if !quotas.into_iter().all(fits) {
        let text = "a quota needs a period of 1ms to 1s, and at least 1ms of it";
        problems.add(values.place("cpu-quota"), text);
    }
}

fn ports(values: &Values, problems: &mut Problems) -> Option<(u16, u16)> {
    let port = |key| values.whole(key).and_then(|port| u16::try_from(port).ok());
    let (first, last) = (port("first")?, port("last")?);
    if first > last {
        problems.add(values.place("last"), "the last port is below the first");
    }
    Some((first, last))
}

fn by_node<T>(
    values: &Values,
    key: &str,
    of: impl Fn(&Values, &str) -> Option<T>,
) -> BTreeMap<Node, T> {
    let Some(table) = values.table(key) else { return BTreeMap::new() };
    NODES.into_iter().filter_map(|node| Some((node, of(table, node.name())?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
title = "everything"
[scenario]
network = "chain"
bandwidth = { rate = "50mbit", limit = "4m" }
loss = { share = "2%" }
delay = { round-trip = "40ms", jitter = "1ms", at = "origin" }
packets = { per-second = 1000, drop = true }
cpu-quota = { subject = 0.3, period = "50ms" }
disk-quota = "2m"
pin = { client = "0", subject = 1 }
noise = { processes = 2, cpus = "1" }
descriptors = { subject = 60 }
ports = { first = 40000, last = 40099 }
sysctl.client = { ipv4.tcp_rmem = "4096 4096 4096" }
rps = { cpus = "1" }
slow-reader = { receive-buffer = "4k" }
drop-syn-ack = { per-second = 500 }
conntrack-max = 50
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
    fn a_rate_is_known_by_the_flags_of_its_driver() {
        let setup = |tool: Tool, flags: &str| Setup {
            tool,
            load: flags.split(' ').map(str::to_owned).collect(),
            ..Setup::default()
        };
        for (tool, flags, expected) in [
            (Tool::Weir, "-c 1 -R 100", true),
            (Tool::Weir, "-c 1 --rate=100", true),
            (Tool::Weir, "-c 1 u", false),
            (Tool::Wrk, "-R 100", false),
            (Tool::Oha, "-q 100", true),
            (Tool::H2load, "--rps=5", true),
            (Tool::Ab, "-n 1", false),
        ] {
            assert_eq!(setup(tool, flags).has_rate(), expected, "{flags}");
        }
    }

    #[test]
    fn a_whole_file_is_read() {
        let experiment = Setup::parse("a.toml", WHOLE).unwrap();
        let scenario = &experiment.scenario;
        assert_eq!(scenario.network, Network::Chain);
        assert_eq!(scenario.bandwidth.unwrap().queue, Queue::Bytes(4 << 20));
        assert_eq!(scenario.delay.unwrap().round_trip_ns, 40_000_000);
        assert_eq!(scenario.cpu_quotas[&Node::Subject].period_ns, 50_000_000);
        assert_eq!(scenario.pins[&Node::Subject], [1]);
        assert_eq!(scenario.sysctls[&Node::Client]["ipv4.tcp_rmem"], "4096 4096 4096");
        assert_eq!(experiment.subject.command[2..], ["--listen", "{subject}:8000"]);
        assert_eq!(experiment.warm_up_ns, 500_000_000);
        assert_eq!(scenario.global_settings(), ["net.netfilter.nf_conntrack_max"]);
    }

    #[test]
    fn all_problems_are_told_at_once_with_their_places() {
        let text = "[scenario]\nbandwith = 3\nloss = { share = \"x\", at = \"moon\" }\n\
             cpu-quota = { subject = -1 }\nports = { first = 9000, last = 8000 }\n\
             [subject]\ncommand = \"a 'b\"\nready = \"1.2.3.4:5\"\n";
        let problems = Setup::parse("a.toml", text).unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a.toml:1:1: 'load' is missing",
            "a.toml:2:1: there is no key 'scenario.bandwith'",
            "a.toml:3:18: 'scenario.loss.share' takes a share",
            "a.toml:3:28: 'scenario.loss.at' takes client or subject or origin",
            "a.toml:4:25: 'scenario.cpu-quota.subject' takes a number above 0",
            "a.toml:5:25: the last port is below the first",
            "a.toml:7:1: 'command' has a quotation mark",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}\n{expected}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        let rest = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\n[load]\nflags = \"x\"\n";
        let problems = |scenario: &str| {
            let text = format!("[scenario]\n{scenario}\n{rest}");
            let problems = Setup::parse("a", &text).err().unwrap_or_default();
            problems.into_iter().map(|problem| problem.text).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(problems(""), "");
        assert!(problems("network = \"loopback\"\nloss.share = 0.1").contains("needs namespaces"));
        assert!(problems("loss = { share = 0.1, at = \"origin\" }").contains("no origin"));
        assert!(problems("cpu-quota = { subject = 0.5, period = \"2s\" }").contains("1ms to 1s"));
        let both = "bandwidth.rate = \"1mbit\"\npackets.per-second = 5";
        assert!(problems(both).contains("already"));
        let queue = "bandwidth = { rate = \"1mbit\", limit = \"1k\", latency = \"1ms\" }";
        assert!(problems(queue).contains("either"));
    }

    #[test]
    fn a_load_has_its_tool_and_a_program_its_variables() {
        let text = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\nenv.LD_PRELOAD = \"x.so\"\n\
                    env.MALLOC_ARENA_MAX = 1\n[load]\ntool = \"wrk\"\nflags = \"x\"\n\
                    warm-up = \"auto\"\n";
        let setup = Setup::parse("a", text).unwrap();
        assert_eq!((setup.tool, setup.warm_up_ns), (Tool::Wrk, WARM_UP_NS));
        assert_eq!(setup.subject.env["LD_PRELOAD"], "x.so");
        assert_eq!(setup.subject.env["MALLOC_ARENA_MAX"], "1");
        let wrong = text.replace("LD_PRELOAD", "\"LD PRELOAD\"").replace("wrk", "work");
        let problems = Setup::parse("a", &wrong).unwrap_err();
        assert!(problems[0].text.starts_with("'LD PRELOAD' is no name of a variable"));
        assert_eq!(problems[1].place, "a:7:8");
        assert!(problems[1].text.contains("weir or wrk or ab"), "{problems:?}");
        for (tool, name) in TOOLS {
            assert_eq!((tool.name(), Tool::named(name)), (name, Some(tool)));
        }
    }

    #[test]
    fn a_program_may_be_ready_later_and_by_more_than_a_connection() {
        let text = "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\nready-path = \"/health?x={port}\"\n\
                    ready-command = \"sh -c 'test -e {dir}/up'\"\nready-within = \"2m\"\n\
                    [load]\nflags = \"x\"\n";
        let subject = Setup::parse("a", text).unwrap().subject;
        assert_eq!((&*subject.ready, &*subject.ready_path), ("1.2.3.4:5", "/health?x={port}"));
        assert_eq!(subject.ready_command, ["sh", "-c", "test -e {dir}/up"]);
        assert_eq!(subject.ready_within_ns, Some(120_000_000_000));
        let wrong =
            text.replace("\"/health", "\"health").replace("2m", "11m").replace("sh -c", "'");
        let problems = Setup::parse("a", &wrong).unwrap_err();
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "a:4:1: 'ready-path' is a path",
            "a:5:1: 'ready-command' has a quotation mark without its other",
            "a:6:1: 'ready-within' is above 0 and at most 10 minutes",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}\n{expected}");
        }
    }

    #[test]
    fn a_program_is_ready_at_an_address_with_its_port() {
        let of = |ready: &str| {
            let text = format!(
                "[subject]\ncommand = \"a\"\nready = \"{ready}\"\n[load]\nflags = \"x\"\n\
                 [files]\n\"a.conf\" = \"x\"\n\"a/b\" = \"y\"\n.hidden = 1\n"
            );
            let problems = Setup::parse("a", &text.replace(".hidden", "\".hidden\"")).unwrap_err();
            problems.iter().map(|problem| problem.place.clone()).collect::<Vec<_>>()
        };
        // Names of files are told where they stand.
        let names = ["a:8:1", "a:9:1"];
        for right in
            ["{subject}:{port}", "1.2.3.4:80", "[::1]:80", "http://{origin}:8000/x", "{later}"]
        {
            assert_eq!(of(right), names, "{right}");
        }
        for wrong in ["{subject}", "{subject}:http", "localhost:80", "8000", "", "{subject}:70000"]
        {
            assert_eq!(of(wrong), ["a:3:1", "a:8:1", "a:9:1"], "{wrong}");
        }
    }

    #[test]
    fn the_keys_of_experiments_are_told_from_what_is_wrong() {
        let text =
            "[subject]\ncommand = \"a\"\nready = \"1.2.3.4:5\"\n[load]\nflag = \"x\"\n[arms.a]\n";
        let problems = Setup::parse("a", text).unwrap_err();
        let told: Vec<&str> = problems.iter().map(|problem| &*problem.text).collect();
        assert!(told[0].starts_with("'load.flags' is missing"), "{told:?}");
        assert!(told[1].starts_with("there is no key 'load.flag' (did you mean 'flags'?); there"));
        assert!(told[2].contains("weir lab run"), "{told:?}");
    }

    #[test]
    fn broken_syntax_is_placed() {
        let problems = Setup::parse("a.toml", "[scenario\nx = ").unwrap_err();
        assert!(
            problems.iter().all(|problem| problem.place.starts_with("a.toml:")),
            "{problems:?}"
        );
    }
}

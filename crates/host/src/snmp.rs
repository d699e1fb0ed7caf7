//! Protocol counters of a network namespace: `/proc/PID/net/snmp` and `/proc/PID/net/netstat`.
//!
//! Single sockets are elsewhere. `Documentation/networking/snmp_counter.rst` explains the counters.
//!
//! Source: `net/ipv4/proc.c`. Each group has two lines, names and figures. Kernels add names
//! freely, so every figure is found by name. The files of a process are those of its network
//! namespace; an open file keeps the namespace alive.

use crate::kernel_file::{KernelFile, NotObservable};
use std::collections::BTreeMap;

/// Full names of figures that are not counters.
const GAUGES: &[&str] = &[
    "Ip.Forwarding",
    "Ip.DefaultTTL",
    "Tcp.RtoAlgorithm",
    "Tcp.RtoMin",
    "Tcp.RtoMax",
    "Tcp.MaxConn",
    "Tcp.CurrEstab",
    "MPTcpExt.MPCurrEstab",
];

/// All figures of one file at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnmpCounters {
    groups: Vec<CounterGroup>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct CounterGroup {
    /// Line with the names, to detect changes.
    heading: String,
    /// Full names, such as "Tcp.RetransSegs".
    names: Vec<String>,
    figures: Vec<u64>,
}

impl SnmpCounters {
    /// Parses a file into `self`, reusing its memory. `None` if a line of names is not followed by
    /// a line of figures of the same group and length.
    pub fn parse_into(&mut self, text: &str) -> Option<()> {
        let mut lines = text.lines();
        let mut used = 0;
        while let Some(heading) = lines.next() {
            if used == self.groups.len() {
                self.groups.push(CounterGroup::default());
            }
            let group = &mut self.groups[used];
            if group.heading != heading {
                group.parse_names(heading)?;
            }
            let (name, figures) = lines.next()?.split_once(':')?;
            if heading.split_once(':')?.0 != name {
                return None;
            }
            group.figures.clear();
            for figure in figures.split_ascii_whitespace() {
                // Only `Tcp.MaxConn` is negative, for "no limit".
                group.figures.push(figure.parse::<i128>().ok()?.max(0) as u64);
            }
            if group.figures.len() != group.names.len() {
                return None;
            }
            used += 1;
        }
        self.groups.truncate(used);
        (used > 0).then_some(())
    }

    /// Returns one figure by its full name, such as `Tcp.CurrEstab`.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.groups.iter().find_map(|group| group.get(name))
    }

    /// Adds the counters that changed since `earlier` to `rates`, per second.
    pub fn rates_since(&self, earlier: &Self, seconds: f64, rates: &mut BTreeMap<String, f64>) {
        for (at, group) in self.groups.iter().enumerate() {
            let then = earlier.groups.get(at);
            let same = then.filter(|then| then.heading == group.heading);
            for (column, (name, now)) in group.names.iter().zip(&group.figures).enumerate() {
                let then = match same {
                    Some(then) => then.figures.get(column).copied(),
                    None => earlier.get(name),
                };
                // A new counter (a first packet of its kind) began at 0.
                let delta = now.saturating_sub(then.unwrap_or(0));
                if delta > 0 && !GAUGES.contains(&name.as_str()) {
                    rates.insert(name.clone(), delta as f64 / seconds);
                }
            }
        }
    }
}

impl CounterGroup {
    fn parse_names(&mut self, heading: &str) -> Option<()> {
        let (group, names) = heading.split_once(':')?;
        heading.clone_into(&mut self.heading);
        self.names = names.split_ascii_whitespace().map(|name| format!("{group}.{name}")).collect();
        Some(())
    }

    fn get(&self, name: &str) -> Option<u64> {
        let column = self.names.iter().position(|known| known == name)?;
        self.figures.get(column).copied()
    }
}

/// Open `snmp` or `netstat` file of one namespace, with the last two readings.
#[derive(Debug)]
struct CounterFile {
    file: KernelFile,
    now: SnmpCounters,
    then: SnmpCounters,
}

impl CounterFile {
    fn open(pid: i32, file: &str) -> Result<Self, NotObservable> {
        let file = KernelFile::open("protocol counters", format!("/proc/{pid}/net/{file}"))?;
        Ok(Self { file, now: SnmpCounters::default(), then: SnmpCounters::default() })
    }

    fn read(&mut self) -> Result<(), NotObservable> {
        std::mem::swap(&mut self.now, &mut self.then);
        let parsed = self.now.parse_into(&self.file.read()?);
        parsed.ok_or_else(|| self.file.bad_format())
    }
}

/// Open counter files of a network namespace.
#[derive(Debug)]
pub struct SnmpReader {
    files: [CounterFile; 2],
    readings: u64,
}

impl SnmpReader {
    /// Opens the files of the network namespace of process `pid`.
    pub fn open(pid: i32) -> Result<Self, NotObservable> {
        Ok(Self { files: [CounterFile::open(pid, "snmp")?, CounterFile::open(pid, "netstat")?], readings: 0 })
    }

    /// Reads all counters, and returns those that changed since the last reading, per second. Empty
    /// the first time.
    pub fn rates(&mut self, seconds: f64) -> Result<BTreeMap<String, f64>, NotObservable> {
        let mut rates = BTreeMap::new();
        for table in &mut self.files {
            table.read()?;
            if self.readings > 0 {
                table.now.rates_since(&table.then, seconds, &mut rates);
            }
        }
        self.readings += 1;
        Ok(rates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "\
Ip: Forwarding DefaultTTL InReceives OutRequests
Ip: 2 64 5227 3186
IcmpMsg: InType3
IcmpMsg: 1
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens CurrEstab RetransSegs
Tcp: 1 200 120000 -1 22 2 3 0
";

    fn parse(text: &str) -> SnmpCounters {
        let mut counters = SnmpCounters::default();
        counters.parse_into(text).unwrap();
        counters
    }

    #[test]
    fn figures_have_names() {
        let counters = parse(SNMP);
        assert_eq!(counters.get("Tcp.ActiveOpens"), Some(22));
        assert_eq!(counters.get("Tcp.MaxConn"), Some(0));
        assert_eq!(counters.get("Ip.InReceives"), Some(5227));
        assert_eq!(counters.get("Tcp.NoSuch"), None);
    }

    #[test]
    fn changed_counters_are_rates_and_gauges_are_none() {
        let before = parse(SNMP);
        let mut after = parse(SNMP);
        after.parse_into(&SNMP.replace("-1 22 2 3 0", "-1 32 2 9 5").replace("5227", "5327")).unwrap();
        let mut rates = BTreeMap::new();
        after.rates_since(&before, 2.0, &mut rates);
        let expected = [("Ip.InReceives", 50.0), ("Tcp.ActiveOpens", 5.0), ("Tcp.RetransSegs", 2.5)];
        let expected: BTreeMap<String, f64> = expected.map(|(name, rate)| (name.to_owned(), rate)).into();
        assert_eq!(rates, expected);
    }

    #[test]
    fn names_and_groups_that_come_later_are_found() {
        let before = parse("Tcp: A B\nTcp: 1 2\n");
        let text = "IcmpMsg: InType3\nIcmpMsg: 4\nTcp: A C B\nTcp: 1 7 3\n";
        let mut rates = BTreeMap::new();
        parse(text).rates_since(&before, 1.0, &mut rates);
        let expected: BTreeMap<String, f64> = [("IcmpMsg.InType3", 4.0), ("Tcp.B", 1.0), ("Tcp.C", 7.0)]
            .map(|(name, rate)| (name.to_owned(), rate))
            .into();
        assert_eq!(rates, expected);
    }

    #[test]
    fn text_of_another_form_is_refused() {
        for text in
            ["", "Tcp: A\n", "Tcp: A\nIp: 1\n", "Tcp: A B\nTcp: 1\n", "Tcp: A\nTcp: x\n", "Tcp\nTcp\n"]
        {
            assert_eq!(SnmpCounters::default().parse_into(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_live_counters_of_this_namespace_move() {
        let mut reader = SnmpReader::open(std::process::id() as i32).unwrap();
        assert!(reader.rates(1.0).unwrap().is_empty());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap());
        drop(client);
        let rates = reader.rates(1.0).unwrap();
        assert!(rates.get("Tcp.ActiveOpens").is_some_and(|rate| *rate >= 1.0), "{rates:?}");
    }
}

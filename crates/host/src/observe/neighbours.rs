//! Programs beside the roles: names and CPUs of the processes that belong to no role, from `/proc/PID/stat`.
//!
//! Processes of one name count as one program. A process that ends between two samples is seen in the times of its
//! parent (`cutime`), and counts as a child of that program, unless the parent belongs to a role.

use std::collections::{BTreeMap, HashMap, VecDeque};

use record::observed::Neighbour;
use record::sorted::sort_by;

use crate::kernel_file::read_once;
use crate::process::{StatLine, parse_stat};

/// Maximum number of processes of the machine that are read.
const PROCESSES_MAX: usize = 16_384;
/// Maximum number of programs with names of their own; the others are counted together.
const PROGRAMS_MAX: usize = 1_024;
/// Maximum number of generations of ended processes that are followed to the one that lives.
const GENERATIONS_MAX: usize = 64;
const NEIGHBOURS_MAX: usize = 3;
/// Length of the time that counts as recent, and the maximum number of samples that are kept for it.
const RECENT_NS: u64 = 10_000_000_000;
const RECENT_SAMPLES_MAX: usize = 64;
/// Minimum CPUs of a program in a record.
const CPUS_MIN: f64 = 0.005;
/// Sampling takes at most one part in this many of the time.
const COST_DIVISOR: u64 = 200;
/// Figure of the reader's errors, which this module leaves out.
const FIGURE: &str = "programs beside the roles";
/// Name of the programs beyond [`PROGRAMS_MAX`].
const OTHERS: &str = "others";

/// A process at a sample; times in ticks.
#[derive(Clone, Debug, Default)]
struct SeenProcess {
    name: String,
    parent: i32,
    start_ticks: u64,
    own_ticks: u64,
    children_ticks: u64,
    is_role: bool,
}

/// Sampler of the programs beside the roles.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    seen: HashMap<i32, SeenProcess>,
    ticks: BTreeMap<String, u64>,
    /// Ends of the last samples, with the ticks of the programs in each.
    recent: VecDeque<(u64, BTreeMap<String, u64>)>,
    first_ns: Option<u64>,
    last_ns: u64,
    next_ns: u64,
}

impl Neighbours {
    /// Samples all processes that `is_role` does not claim, if the last sample was cheap enough.
    pub(crate) fn sample(&mut self, now_ns: u64, clock: fn() -> u64, is_role: impl Fn(i32) -> bool) {
        if now_ns < self.next_ns {
            return;
        }
        let begun_ns = clock();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let read = |pid: i32| {
            let text = read_once(FIGURE, &format!("/proc/{pid}/stat")).ok()?;
            Some((pid, seen_process(&parse_stat(&text)?, is_role(pid))))
        };
        let current = pids.take(PROCESSES_MAX).filter_map(read).collect();
        self.add(now_ns, current);
        let cost_ns = clock().saturating_sub(begun_ns);
        self.next_ns = now_ns.saturating_add(cost_ns.saturating_mul(COST_DIVISOR));
    }

    fn add(&mut self, now_ns: u64, current: HashMap<i32, SeenProcess>) {
        let before = std::mem::replace(&mut self.seen, current.clone());
        self.last_ns = now_ns;
        self.recent.push_back((now_ns, BTreeMap::new()));
        if self.recent.len() > RECENT_SAMPLES_MAX {
            self.recent.pop_front();
        }
        // Of the processes of the first sample, nothing is known before.
        let Some(first_ns) = self.first_ns else { return self.first_ns = Some(now_ns) };
        let same =
            |pid: &i32, now: &SeenProcess| before.get(pid).filter(|seen| seen.start_ticks == now.start_ticks);
        // What ended processes had used when they were last seen has counted under their names.
        let lives = |pid: i32, seen: &SeenProcess| {
            current.get(&pid).is_some_and(|now| now.start_ticks == seen.start_ticks)
        };
        let mut counted: HashMap<i32, u64> = HashMap::new();
        for ended in before.iter().filter(|(pid, seen)| !lives(**pid, seen)).map(|(_, seen)| seen) {
            let mut reaper = ended.parent;
            // Parents that ended too have handed on what they reaped.
            for _ in 0..GENERATIONS_MAX {
                match before.get(&reaper) {
                    Some(parent) if !lives(reaper, parent) => reaper = parent.parent,
                    _ => break,
                }
            }
            *counted.entry(reaper).or_default() += ended.own_ticks + ended.children_ticks;
        }
        let first_ticks = first_ns / (1_000_000_000 / crate::cpu::ticks_per_s());
        for (pid, now) in current.iter().filter(|(_, now)| !now.is_role) {
            let (own_before, children_before) = match same(pid, now) {
                Some(seen) => (seen.own_ticks, seen.children_ticks),
                None if now.start_ticks >= first_ticks => (0, 0),
                None => (now.own_ticks, now.children_ticks),
            };
            let reaped = now.children_ticks.saturating_sub(children_before);
            let reaped = reaped.saturating_sub(counted.get(pid).copied().unwrap_or(0));
            self.count(now.name.clone(), now.own_ticks.saturating_sub(own_before));
            self.count(format!("children of {}", now.name), reaped);
        }
    }

    fn count(&mut self, name: String, ticks: u64) {
        if ticks == 0 {
            return;
        }
        let is_known = self.ticks.contains_key(&name) || self.ticks.len() < PROGRAMS_MAX;
        let name = if is_known { name } else { OTHERS.to_owned() };
        if let Some((_, counts)) = self.recent.back_mut() {
            *counts.entry(name.clone()).or_default() += ticks;
        }
        *self.ticks.entry(name).or_default() += ticks;
    }

    /// Returns the programs with the most CPU time since the first sample, at most three.
    pub(crate) fn busiest(&self) -> Vec<Neighbour> {
        busiest(&self.ticks, self.last_ns.saturating_sub(self.first_ns.unwrap_or(self.last_ns)))
    }

    /// Returns the programs with the most CPU time in the last seconds, at most three.
    pub(crate) fn busiest_recently(&self) -> Vec<Neighbour> {
        let is_recent = |end_ns: u64| end_ns.saturating_add(RECENT_NS) >= self.last_ns;
        // The ticks of a sample are those since the one before.
        let before = self.recent.iter().rev().find(|(end_ns, _)| !is_recent(*end_ns));
        let Some((from_ns, _)) = before.or_else(|| self.recent.front()) else { return Vec::new() };
        let mut sum: BTreeMap<String, u64> = BTreeMap::new();
        for (_, counts) in self.recent.iter().filter(|(end_ns, _)| end_ns > from_ns) {
            for (name, ticks) in counts {
                *sum.entry(name.clone()).or_default() += ticks;
            }
        }
        busiest(&sum, self.last_ns.saturating_sub(*from_ns))
    }
}

fn busiest(ticks: &BTreeMap<String, u64>, length_ns: u64) -> Vec<Neighbour> {
    let length_s = length_ns as f64 / 1e9;
    let ticks_per_s = crate::cpu::ticks_per_s() as f64;
    let cpus = |ticks: u64| ticks as f64 / ticks_per_s / length_s.max(1e-3);
    let mut all: Vec<Neighbour> =
        ticks.iter().map(|(name, ticks)| Neighbour { name: name.clone(), cpus: cpus(*ticks) }).collect();
    all.retain(|neighbour| neighbour.cpus >= CPUS_MIN && length_s > 0.0);
    sort_by(&mut all, |a, b| b.cpus.total_cmp(&a.cpus));
    all.truncate(NEIGHBOURS_MAX);
    all
}

fn seen_process(stat: &StatLine<'_>, is_role: bool) -> SeenProcess {
    SeenProcess {
        name: stat.name.to_owned(),
        parent: stat.parent,
        start_ticks: stat.start_ticks,
        own_ticks: stat.user_ticks + stat.system_ticks,
        children_ticks: stat.children_ticks,
        is_role,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn seen(name: &str, parent: i32, own_ticks: u64, children_ticks: u64, start_ticks: u64) -> SeenProcess {
        let name = name.to_owned();
        SeenProcess { name, parent, start_ticks, own_ticks, children_ticks, is_role: false }
    }

    fn names(neighbours: &Neighbours) -> Vec<String> {
        neighbours
            .busiest()
            .into_iter()
            .map(|neighbour| format!("{} {:.1}", neighbour.name, neighbour.cpus))
            .collect()
    }

    #[test]
    fn recent_programs_are_those_of_the_last_seconds() {
        let mut neighbours = Neighbours::default();
        let ticks_per_s = crate::cpu::ticks_per_s();
        let at = |second: u64| {
            // The first program works for 20 s, and the second one after it.
            let (first, second) = (second.min(20), second.saturating_sub(20));
            let process = |name, seconds: u64| seen(name, 0, seconds * ticks_per_s, 0, 1);
            [(1, process("cc1", first)), (2, process("rustc", second))].into()
        };
        assert!(neighbours.busiest_recently().is_empty());
        (0..=25).for_each(|second| neighbours.add(second * SECOND_NS, at(second)));
        let recent: Vec<String> =
            neighbours.busiest_recently().into_iter().map(|neighbour| neighbour.name).collect();
        assert_eq!(recent, ["cc1", "rustc"], "5 of 10 s each: {:?}", neighbours.busiest_recently());
        (26..=200).for_each(|second| neighbours.add(second * SECOND_NS, at(second)));
        let recent = neighbours.busiest_recently();
        assert!(recent.len() == 1 && recent[0].name == "rustc" && (recent[0].cpus - 1.0).abs() < 0.01);
        assert_eq!(neighbours.recent.len(), RECENT_SAMPLES_MAX);
        assert_eq!(names(&neighbours).len(), 2, "of all the time");
    }

    #[test]
    fn programs_are_named_by_what_they_used_since_the_first_sample() {
        let per_s = crate::cpu::ticks_per_s();
        let mut neighbours = Neighbours::default();
        let server = |ticks| SeenProcess { is_role: true, ..seen("nginx", 1, ticks, 0, 1) };
        neighbours.add(10 * SECOND_NS, [(1, seen("make", 0, 500, 900, 1)), (2, server(700))].into());
        assert!(neighbours.busiest().is_empty());
        // A process of an earlier start that was not seen has an unknown past; one that began since has none.
        let current = [
            (1, seen("make", 0, 500, 900 + per_s, 1)),
            (2, server(700 + per_s)),
            (3, seen("late", 1, 5_000, 0, 2)),
            (4, seen("cc1", 1, per_s / 2, 0, 10 * per_s)),
            (5, seen("cc1", 1, per_s, 0, 10 * per_s)),
        ];
        neighbours.add(11 * SECOND_NS, current.into());
        assert_eq!(names(&neighbours), ["cc1 1.5", "children of make 1.0"]);
        // Both compilers ended: make reaps what has counted under their name, and half a second more.
        let current = [
            (1, seen("make", 0, 500, 900 + 3 * per_s, 1)),
            (2, server(700 + per_s)),
            (3, seen("late", 1, 5_000, 0, 2)),
        ];
        neighbours.add(12 * SECOND_NS, current.into());
        assert_eq!(names(&neighbours), ["cc1 0.8", "children of make 0.8"]);
    }

    #[test]
    fn a_long_life_that_ends_with_its_parent_does_not_count() {
        let per_s = crate::cpu::ticks_per_s();
        let mut neighbours = Neighbours::default();
        let before = [
            (1, seen("bash", 0, 5, 100, 1)),
            (2, seen("timeout", 1, 1, 0, 2)),
            (3, seen("job", 2, 900 * per_s, 50, 3)),
        ];
        neighbours.add(10 * SECOND_NS, before.into());
        let reaped = 100 + 1 + 900 * per_s + 50 + per_s / 2;
        neighbours.add(11 * SECOND_NS, [(1, seen("bash", 0, 5, reaped, 1))].into());
        assert_eq!(names(&neighbours), ["children of bash 0.5"]);
    }

    #[test]
    fn a_program_of_this_machine_that_computes_is_named() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = child.id().cast_signed();
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime_ns = (uptime.split_once(' ').unwrap().0.parse::<f64>().unwrap() * 1e9) as u64;
        let mut neighbours = Neighbours::default();
        let mut second = 0;
        while names(&neighbours).is_empty() && second < 150 {
            neighbours.sample(uptime_ns + second * SECOND_NS, || 0, |other| other != pid);
            std::thread::sleep(std::time::Duration::from_millis(200));
            second += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(names(&neighbours)[0].starts_with("sh "), "{:?}", names(&neighbours));
    }
}

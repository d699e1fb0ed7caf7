//! The busiest programs of the machine, for when the user named no target. Processes of one name
//! count as one program: a server with ten workers is one.

use record::sorted::sort_by_key;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use host::process::ProcessReader;

/// Time between the two samples that show who is busy.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
const PROCESSES_MAX: usize = 20_000;

/// A program: its name and its processes, in ascending order.
pub(super) type Program = (String, Vec<i32>);

/// Returns the busiest programs, at most `max`; leaves out programs that did nothing.
pub(super) fn find_busiest(max: usize) -> Vec<Program> {
    let own_pid = std::process::id().cast_signed();
    let mut readers: Vec<(i32, ProcessReader)> = pids()
        .into_iter()
        .filter(|pid| *pid != own_pid)
        .filter_map(|pid| Some((pid, ProcessReader::open(pid).ok()?)))
        .collect();
    let before = sample_ticks(&mut readers);
    sleep(SAMPLE_INTERVAL);
    rank_by_ticks(&before, &sample_ticks(&mut readers), max)
}

fn pids() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).take(PROCESSES_MAX).collect()
}

/// Names and CPU time, in ticks, by process.
type CpuTicks = BTreeMap<i32, (String, u64)>;

/// Samples all processes; leaves out those that have ended since.
fn sample_ticks(readers: &mut [(i32, ProcessReader)]) -> CpuTicks {
    let sample_process = |(pid, reader): &mut (i32, ProcessReader)| {
        let times = reader.sample().ok()?;
        Some((*pid, (times.name.clone(), times.user_ticks + times.system_ticks)))
    };
    readers.iter_mut().filter_map(sample_process).collect()
}

fn rank_by_ticks(before: &CpuTicks, after: &CpuTicks, max: usize) -> Vec<Program> {
    let mut programs: BTreeMap<&str, (u64, Vec<i32>)> = BTreeMap::new();
    for (pid, (name, ticks)) in after {
        let earlier = before.get(pid).map_or(*ticks, |(_, ticks)| *ticks);
        let program = programs.entry(name).or_default();
        program.0 += ticks.saturating_sub(earlier);
        program.1.push(*pid);
    }
    let mut busy: Vec<_> = programs.into_iter().filter(|(_, (ticks, _))| *ticks > 0).collect();
    sort_by_key(&mut busy, |(_, (ticks, _))| std::cmp::Reverse(*ticks));
    busy.truncate(max);
    busy.into_iter().map(|(name, (_, pids))| (name.to_owned(), pids)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_ranked_by_what_all_their_processes_used() {
        let ticks = |rows: &[(i32, &str, u64)]| -> CpuTicks {
            rows.iter().map(|(pid, name, ticks)| (*pid, ((*name).to_owned(), *ticks))).collect()
        };
        let before = ticks(&[(1, "init", 9), (2, "nginx", 5), (3, "nginx", 5), (4, "db", 0)]);
        let after = ticks(&[(1, "init", 9), (2, "nginx", 8), (3, "nginx", 8), (4, "db", 5), (9, "new", 4)]);
        let ranked = rank_by_ticks(&before, &after, 5);
        assert_eq!(ranked, [("nginx".to_owned(), vec![2, 3]), ("db".to_owned(), vec![4])]);
        assert_eq!(rank_by_ticks(&before, &after, 1).len(), 1);
    }

    #[test]
    fn this_machine_has_processes_and_this_one_is_not_among_the_busiest() {
        let own_pid = std::process::id().cast_signed();
        assert!(pids().contains(&own_pid));
        assert!(find_busiest(5).iter().all(|(_, pids)| !pids.contains(&own_pid) && !pids.is_empty()));
    }
}

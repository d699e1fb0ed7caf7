//! Result of the profiler: functions on CPUs, their stacks, and the cost of profiling.
//!
//! Pure once the names are resolved.

use std::collections::{BTreeMap, HashMap, HashSet};

use record::observed::FunctionUse;
use record::sorted::sort_by;

use super::folded::FoldedStacks;
use super::stacks::{SampleCollector, SampledProcess, Stack};
use super::symbols::{Function, SymbolCache};
use crate::cpu::thread_cpu_ns;

/// Sampled stacks, with names.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub pids: Vec<i32>,
    /// Requested samples per second of CPU time.
    pub frequency: u32,
    pub length_s: f64,
    /// Number of samples taken, all of them in the stacks.
    pub samples: u64,
    /// Number of samples lost because they were not read in time.
    pub lost: u64,
    /// Number of samples dropped because the limit of distinct stacks was reached.
    pub dropped: u64,
    /// Number of times that the kernel throttled the sampling because it took too long.
    pub throttled: u64,
    /// True if the kernel's part was sampled.
    pub has_kernel: bool,
    /// True if sampling was denied, so that the profile has the time of threads and no functions.
    pub threads_only: bool,
    /// CPU time of reading the samples, in seconds.
    pub sampling_cpu_s: f64,
    /// CPU time of resolving the names afterwards, in seconds.
    pub symbolization_cpu_s: f64,
    /// Descriptions of whatever could not be observed.
    pub notes: Vec<String>,
    functions: Vec<Function>,
    stacks: Vec<NamedStack>,
    names: BTreeMap<i32, String>,
}

#[derive(Clone, Debug)]
struct NamedStack {
    pid: i32,
    /// Indexes into `functions`, the innermost first.
    frames: Vec<u32>,
    samples: u64,
}

impl Profile {
    pub(super) fn from_collector(collected: &SampleCollector, notes: Vec<String>) -> Self {
        let before_ns = thread_cpu_ns();
        let mut symbolizer = Symbolizer::default();
        let mut stacks: Vec<NamedStack> = collected
            .stacks
            .iter()
            .map(|(stack, &samples)| {
                let process = collected.processes.get(&stack.pid);
                NamedStack { pid: stack.pid, frames: symbolizer.resolve(stack, process), samples }
            })
            .collect();
        sort_by(&mut stacks, |a, b| (a.pid, &a.frames).cmp(&(b.pid, &b.frames)));
        let names = collected.processes.iter().map(|(&pid, process)| (pid, process.name.clone())).collect();
        let mut notes = notes;
        notes.append(&mut symbolizer.symbols.notes);
        Self {
            samples: collected.samples,
            lost: collected.lost,
            dropped: collected.dropped,
            throttled: collected.throttled,
            sampling_cpu_s: collected.cost_ns as f64 / 1e9,
            symbolization_cpu_s: thread_cpu_ns().saturating_sub(before_ns) as f64 / 1e9,
            notes,
            functions: symbolizer.functions,
            stacks,
            names,
            ..Self::default()
        }
    }

    /// Creates a profile from ticks of threads, in user space (false) or in the kernel (true), by
    /// process and thread name.
    pub(super) fn from_threads(
        rows: &[(i32, &str, bool, u64)],
        names: BTreeMap<i32, String>,
        notes: Vec<String>,
    ) -> Self {
        let mut profile = Self { notes, names, has_kernel: true, threads_only: true, ..Self::default() };
        for &(pid, thread, is_kernel, ticks) in rows.iter().filter(|row| row.3 > 0) {
            let mode = if is_kernel { "(kernel)" } else { "(user space)" };
            let mode = profile.function_index(mode, "[unknown]", is_kernel);
            let thread = profile.function_index(&format!("thread {thread}"), "[thread]", false);
            profile.stacks.push(NamedStack { pid, frames: vec![mode, thread], samples: ticks });
            profile.samples += ticks;
        }
        profile
    }

    /// Returns the index of a function, which is added if new.
    fn function_index(&mut self, name: &str, module: &str, is_kernel: bool) -> u32 {
        let is_same = |function: &Function| function.name == name && function.module == module;
        let at = self.functions.iter().position(is_same).unwrap_or_else(|| {
            let (name, module) = (name.to_owned(), module.to_owned());
            self.functions.push(Function { name, module, is_kernel });
            self.functions.len() - 1
        });
        at as u32
    }

    /// Returns all sampled functions, whatever their process, sorted by time on CPU. Each is
    /// labelled with `role`.
    pub fn functions(&self, role: &str) -> Vec<FunctionUse> {
        let mut counts: Vec<(u64, u64)> = vec![(0, 0); self.functions.len()];
        let mut all = 0;
        let mut seen = HashSet::new();
        for stack in &self.stacks {
            all += stack.samples;
            if let Some(&top) = stack.frames.first() {
                counts[top as usize].0 += stack.samples;
            }
            // A recursive function counts once per stack.
            seen.clear();
            for &frame in stack.frames.iter().filter(|&&frame| seen.insert(frame)) {
                counts[frame as usize].1 += stack.samples;
            }
        }
        let fraction = |count: u64| count as f64 / (all as f64).max(1.0);
        let mut rows: Vec<FunctionUse> = self
            .functions
            .iter()
            .zip(counts)
            .filter(|(_, (_, total))| *total > 0)
            .map(|(function, (own, total))| FunctionUse {
                role: role.to_owned(),
                function: function.name.clone(),
                module: function.module.clone(),
                self_fraction: fraction(own),
                total_fraction: fraction(total),
            })
            .collect();
        sort_by(&mut rows, |a, b| {
            let by_self = b.self_fraction.total_cmp(&a.self_fraction);
            let by_total = b.total_fraction.total_cmp(&a.total_fraction);
            by_self.then(by_total).then_with(|| a.function.cmp(&b.function))
        });
        rows
    }

    /// Returns the stacks as text that other tools can also read.
    pub fn folded(&self) -> FoldedStacks {
        let mut folded = FoldedStacks::default();
        for stack in &self.stacks {
            let name = self.names.get(&stack.pid).map_or("?", String::as_str);
            let frames = stack.frames.iter().rev().map(|&frame| {
                let function = &self.functions[frame as usize];
                (function.name.as_str(), function.is_kernel)
            });
            folded.add(name, frames, stack.samples);
        }
        folded
    }
}

/// Assigns each function a number.
#[derive(Default)]
struct Symbolizer {
    symbols: SymbolCache,
    functions: Vec<Function>,
    indexes: HashMap<Function, u32>,
    /// Resolved addresses; the kernel's belong to no process.
    resolved: HashMap<(i32, u64), u32>,
}

impl Symbolizer {
    fn resolve(&mut self, stack: &Stack, process: Option<&SampledProcess>) -> Vec<u32> {
        let no_process = SampledProcess::default();
        let process = process.unwrap_or(&no_process);
        let kernel = usize::from(stack.kernel_frames);
        let frames = stack.addresses.iter().enumerate().map(|(at, &address)| {
            // Callers are recorded with their return address, which may be in the next function
            // already.
            let address = if at == 0 || at == kernel { address } else { address.saturating_sub(1) };
            match at < kernel {
                true => self.function_index(None, process, address),
                false => self.function_index(Some(stack.pid), process, address),
            }
        });
        frames.collect()
    }

    fn function_index(&mut self, pid: Option<i32>, process: &SampledProcess, address: u64) -> u32 {
        let key = (pid.unwrap_or(0), address);
        if let Some(&index) = self.resolved.get(&key) {
            return index;
        }
        let function = match pid {
            Some(pid) => self.symbols.user_function(pid, process, address),
            None => self.symbols.kernel_function(address),
        };
        let index = *self.indexes.entry(function).or_insert_with_key(|function| {
            self.functions.push(function.clone());
            (self.functions.len() - 1) as u32
        });
        self.resolved.insert(key, index);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let function = |name: &str, is_kernel| Function {
            name: name.to_owned(),
            module: if is_kernel { "[kernel]" } else { "app" }.to_owned(),
            is_kernel,
        };
        let stack = |pid, frames: &[u32], samples| NamedStack { pid, frames: frames.to_vec(), samples };
        Profile {
            functions: vec![function("main", false), function("a;b", false), function("k", true)],
            stacks: vec![stack(1, &[2, 1, 1, 0], 6), stack(1, &[1, 0], 2), stack(2, &[0], 2)],
            names: [(1, "one".to_owned()), (2, "two".to_owned())].into(),
            samples: 10,
            ..Profile::default()
        }
    }

    #[test]
    fn fractions_are_of_the_role() {
        let rows = profile().functions("subject");
        let short: Vec<_> =
            rows.iter().map(|row| (&*row.function, row.self_fraction, row.total_fraction)).collect();
        assert_eq!(short, [("k", 0.6, 0.6), ("main", 0.2, 1.0), ("a;b", 0.2, 0.8)]);
    }

    #[test]
    fn stacks_are_folded_from_the_outside() {
        let text = profile().folded().to_string();
        assert_eq!(text, "one;main;a:b 2\none;main;a:b;a:b;k_[k] 6\ntwo;main 2\n");
    }
}

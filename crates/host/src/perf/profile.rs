//! What a profiler found: which functions were on processors, in which stacks, and what it cost to
//! find out.
//!
//! Pure once the names are looked up.

use std::collections::{BTreeMap, HashMap, HashSet};

use record::observed::FunctionShare;

use super::folded::Folded;
use super::stacks::{Collected, Process, Stack};
use super::symbols::{Function, Symbols};
use crate::cpu::thread_cpu_ns;

/// The stacks that were seen, with names.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The processes that were asked for.
    pub pids: Vec<i32>,
    /// Samples per second of a processor's time that were asked for.
    pub frequency: u32,
    /// For how long, in seconds.
    pub length_s: f64,
    /// Samples that were taken, and are in the stacks.
    pub samples: u64,
    /// Samples that were lost because nobody read them in time.
    pub lost: u64,
    /// Samples of stacks that came after more different ones than are kept.
    pub not_kept: u64,
    /// Times that the kernel slowed the sampling down because it took too long.
    pub throttled: u64,
    /// Whether the kernel's part was sampled.
    pub has_kernel: bool,
    /// Whether nothing could be sampled, so that what stands here is time of threads and no functions.
    pub threads_only: bool,
    /// Processor time of reading the samples, in seconds.
    pub reading_s: f64,
    /// Processor time of looking up the names afterwards, in seconds.
    pub naming_s: f64,
    /// What could not be seen, in words.
    pub notes: Vec<String>,
    functions: Vec<Function>,
    stacks: Vec<Named>,
    names: BTreeMap<i32, String>,
}

/// A stack with names.
#[derive(Clone, Debug)]
struct Named {
    pid: i32,
    /// Places in `functions`, the innermost first.
    frames: Vec<u32>,
    samples: u64,
}

impl Profile {
    pub(super) fn of(collected: &Collected, notes: Vec<String>) -> Self {
        let before_ns = thread_cpu_ns();
        let mut namer = Namer::default();
        let mut stacks: Vec<Named> = collected
            .stacks
            .iter()
            .map(|(stack, &samples)| {
                let process = collected.processes.get(&stack.pid);
                Named { pid: stack.pid, frames: namer.frames(stack, process), samples }
            })
            .collect();
        stacks.sort_by(|a, b| (a.pid, &a.frames).cmp(&(b.pid, &b.frames)));
        let names = collected.processes.iter().map(|(&pid, one)| (pid, one.name.clone())).collect();
        let mut notes = notes;
        notes.append(&mut namer.symbols.notes);
        Self {
            samples: collected.samples,
            lost: collected.lost,
            not_kept: collected.not_kept,
            throttled: collected.throttled,
            reading_s: collected.cost_ns as f64 / 1e9,
            naming_s: thread_cpu_ns().saturating_sub(before_ns) as f64 / 1e9,
            notes,
            functions: namer.functions,
            stacks,
            names,
            ..Self::default()
        }
    }

    /// Ticks of threads, in user space (false) or in the kernel (true), by process and thread name.
    pub(super) fn of_threads(
        rows: &[(i32, &str, bool, u64)],
        names: BTreeMap<i32, String>,
        notes: Vec<String>,
    ) -> Self {
        let mut profile =
            Self { notes, names, has_kernel: true, threads_only: true, ..Self::default() };
        for &(pid, thread, is_kernel, ticks) in rows.iter().filter(|row| row.3 > 0) {
            let mode = if is_kernel { "(kernel)" } else { "(user space)" };
            let mode = profile.function(mode, "[unknown]", is_kernel);
            let thread = profile.function(&format!("thread {thread}"), "[thread]", false);
            profile.stacks.push(Named { pid, frames: vec![mode, thread], samples: ticks });
            profile.samples += ticks;
        }
        profile
    }

    /// The place of a function, which is made if it is not there.
    fn function(&mut self, name: &str, module: &str, is_kernel: bool) -> u32 {
        let is_it = |one: &Function| one.name == name && one.module == module;
        let at = self.functions.iter().position(is_it).unwrap_or_else(|| {
            let (name, module) = (name.to_owned(), module.to_owned());
            self.functions.push(Function { name, module, is_kernel });
            self.functions.len() - 1
        });
        at as u32
    }

    /// All functions that were seen, in whichever process, those that were on processors most first; they
    /// are said to be of `role`.
    #[must_use]
    pub fn functions(&self, role: &str) -> Vec<FunctionShare> {
        let mut counts: Vec<(u64, u64)> = vec![(0, 0); self.functions.len()];
        let mut all = 0;
        let mut seen = HashSet::new();
        for stack in &self.stacks {
            all += stack.samples;
            if let Some(&top) = stack.frames.first() {
                counts[top as usize].0 += stack.samples;
            }
            // A function that calls itself is in the stack once.
            seen.clear();
            for &frame in stack.frames.iter().filter(|&&frame| seen.insert(frame)) {
                counts[frame as usize].1 += stack.samples;
            }
        }
        let share = |count: u64| count as f64 / (all as f64).max(1.0);
        let mut rows: Vec<FunctionShare> = self
            .functions
            .iter()
            .zip(counts)
            .filter(|(_, (_, total))| *total > 0)
            .map(|(function, (own, total))| FunctionShare {
                role: role.to_owned(),
                function: function.name.clone(),
                module: function.module.clone(),
                share_self: share(own),
                share_total: share(total),
            })
            .collect();
        rows.sort_by(|a, b| {
            let by_share = b.share_self.total_cmp(&a.share_self);
            let by_total = b.share_total.total_cmp(&a.share_total);
            by_share.then(by_total).then_with(|| a.function.cmp(&b.function))
        });
        rows
    }

    /// The stacks as text that other tools read too.
    #[must_use]
    pub fn folded(&self) -> Folded {
        let mut folded = Folded::default();
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

/// Gives each function a number.
#[derive(Default)]
struct Namer {
    symbols: Symbols,
    functions: Vec<Function>,
    numbers: HashMap<Function, u32>,
    /// Addresses that were looked up; the kernel's belong to no process.
    known: HashMap<(i32, u64), u32>,
}

impl Namer {
    fn frames(&mut self, stack: &Stack, process: Option<&Process>) -> Vec<u32> {
        let nobody = Process::default();
        let process = process.unwrap_or(&nobody);
        let kernel = usize::from(stack.kernel);
        let frames = stack.addresses.iter().enumerate().map(|(at, &address)| {
            // Callers stand with where they go on, which may be in the next function already.
            let address = if at == 0 || at == kernel { address } else { address.saturating_sub(1) };
            match at < kernel {
                true => self.number(None, process, address),
                false => self.number(Some(stack.pid), process, address),
            }
        });
        frames.collect()
    }

    fn number(&mut self, pid: Option<i32>, process: &Process, address: u64) -> u32 {
        let key = (pid.unwrap_or(0), address);
        if let Some(&number) = self.known.get(&key) {
            return number;
        }
        let function = match pid {
            Some(pid) => self.symbols.user(pid, process, address),
            None => self.symbols.kernel(address),
        };
        let number = *self.numbers.entry(function).or_insert_with_key(|function| {
            self.functions.push(function.clone());
            (self.functions.len() - 1) as u32
        });
        self.known.insert(key, number);
        number
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
        let stack = |pid, frames: &[u32], samples| Named { pid, frames: frames.to_vec(), samples };
        Profile {
            functions: vec![function("main", false), function("a;b", false), function("k", true)],
            stacks: vec![stack(1, &[2, 1, 1, 0], 6), stack(1, &[1, 0], 2), stack(2, &[0], 2)],
            names: [(1, "one".to_owned()), (2, "two".to_owned())].into(),
            samples: 10,
            ..Profile::default()
        }
    }

    #[test]
    fn shares_are_of_the_role() {
        let rows = profile().functions("subject");
        let short: Vec<_> =
            rows.iter().map(|row| (&*row.function, row.share_self, row.share_total)).collect();
        assert_eq!(short, [("k", 0.6, 0.6), ("main", 0.2, 1.0), ("a;b", 0.2, 0.8)]);
    }

    #[test]
    fn stacks_are_folded_from_the_outside() {
        let text = profile().folded().to_string();
        assert_eq!(text, "one;main;a:b 2\none;main;a:b;a:b;k_[k] 6\ntwo;main 2\n");
    }
}

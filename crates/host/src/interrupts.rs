//! Interrupts by CPU: the network's softirqs (`/proc/softirqs`) and hardware interrupts
//! (`/proc/interrupts`).
//!
//! [`crate::cpu`] has the time that they take. Interrupt lines and devices, and the CPU that serves
//! each queue, are not covered.
//!
//! Source: `Documentation/filesystems/proc.rst`. Counts since boot.

use crate::kernel_file::{KernelFile, NotObservable};

/// The network's softirqs, one figure per CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SoftIrqs {
    /// CPU numbers, in the order of the figures.
    pub cpu_ids: Vec<u32>,
    pub net_rx: Vec<u64>,
    pub net_tx: Vec<u64>,
}

impl SoftIrqs {
    /// Parses the text of `/proc/softirqs` into `self`, reusing its memory.
    pub fn parse_into(&mut self, text: &str) -> Option<()> {
        let mut lines = text.lines();
        parse_header(lines.next()?, &mut self.cpu_ids)?;
        self.net_rx.clear();
        self.net_tx.clear();
        for line in lines {
            let (name, figures) = line.split_once(':')?;
            let row = match name.trim() {
                "NET_RX" => &mut self.net_rx,
                "NET_TX" => &mut self.net_tx,
                _ => continue,
            };
            row.extend(figures.split_ascii_whitespace().map_while(|field| field.parse::<u64>().ok()));
        }
        let is_complete = |row: &Vec<u64>| row.len() == self.cpu_ids.len();
        (is_complete(&self.net_rx) && is_complete(&self.net_tx)).then_some(())
    }
}

/// Hardware interrupts, one figure per CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// CPU numbers, in the order of the figures.
    pub cpu_ids: Vec<u32>,
    /// Interrupts of any kind on each CPU, including the timer.
    pub counts: Vec<u64>,
}

impl Interrupts {
    /// Parses the text of `/proc/interrupts` into `self`, reusing its memory. Lines without counts
    /// per CPU (`ERR`, `MIS`) are left out.
    pub fn parse_into(&mut self, text: &str) -> Option<()> {
        let mut rows = text.lines();
        parse_header(rows.next()?, &mut self.cpu_ids)?;
        let cpus = self.cpu_ids.len();
        self.counts.clear();
        self.counts.resize(cpus, 0);
        for row in rows {
            let (_, rest) = row.split_once(':')?;
            let fields = || rest.split_ascii_whitespace();
            let figures = || fields().map_while(|field| field.parse::<u64>().ok());
            if figures().take(cpus).count() == cpus {
                self.counts.iter_mut().zip(figures()).for_each(|(sum, count)| *sum += count);
            }
        }
        Some(())
    }
}

/// `/proc/softirqs`, kept open.
#[derive(Debug)]
pub struct SoftIrqReader {
    file: KernelFile,
    last: SoftIrqs,
}

impl SoftIrqReader {
    pub fn open() -> Result<Self, NotObservable> {
        let file = KernelFile::open("softirqs per CPU", "/proc/softirqs")?;
        Ok(Self { file, last: SoftIrqs::default() })
    }

    /// Reads the counts. The value lives until the next sample.
    pub fn sample(&mut self) -> Result<&SoftIrqs, NotObservable> {
        let parsed = self.last.parse_into(&self.file.read()?);
        parsed.ok_or_else(|| self.file.bad_format())?;
        Ok(&self.last)
    }
}

/// `/proc/interrupts`, kept open.
#[derive(Debug)]
pub struct InterruptReader {
    file: KernelFile,
    last: Interrupts,
}

impl InterruptReader {
    pub fn open() -> Result<Self, NotObservable> {
        let file = KernelFile::open("hardware interrupts per CPU", "/proc/interrupts")?;
        Ok(Self { file, last: Interrupts::default() })
    }

    /// Reads the counts. The value lives until the next sample.
    pub fn sample(&mut self) -> Result<&Interrupts, NotObservable> {
        let parsed = self.last.parse_into(&self.file.read()?);
        parsed.ok_or_else(|| self.file.bad_format())?;
        Ok(&self.last)
    }
}

/// Parses the CPUs of the columns, "CPU0  CPU2", at least one.
fn parse_header(line: &str, cpu_ids: &mut Vec<u32>) -> Option<()> {
    cpu_ids.clear();
    for name in line.split_ascii_whitespace() {
        cpu_ids.push(name.strip_prefix("CPU")?.parse().ok()?);
    }
    (!cpu_ids.is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOFTIRQS: &str = "\
                    CPU0       CPU1       
          HI:          0          0
       TIMER:      14358      18082
      NET_TX:          4          0
      NET_RX:       2726       3875
       BLOCK:          0      95402
     HRTIMER:          0          0
";

    const INTERRUPTS: &str = "           CPU0       CPU1       
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 36:          0      95403 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
NMI:          0          0   Non-maskable interrupts
LOC:      90040     104578   Local timer interrupts
ERR:          0
MIS:          0
PIW:          0          7
";

    #[test]
    fn the_networks_softirqs_are_read() {
        let mut softirqs = SoftIrqs::default();
        for _ in 0..2 {
            softirqs.parse_into(SOFTIRQS).unwrap();
            assert_eq!(softirqs.cpu_ids, [0, 1]);
            assert_eq!((&softirqs.net_rx[..], &softirqs.net_tx[..]), (&[2726, 3875][..], &[4, 0][..]));
        }
    }

    #[test]
    fn interrupts_are_added_up() {
        let mut interrupts = Interrupts::default();
        for _ in 0..2 {
            interrupts.parse_into(INTERRUPTS).unwrap();
            assert_eq!(
                (&interrupts.cpu_ids[..], &interrupts.counts[..]),
                (&[0, 1][..], &[90041, 199_988][..])
            );
        }
    }

    #[test]
    fn an_offline_cpu_has_no_column() {
        let mut interrupts = Interrupts::default();
        interrupts.parse_into("      CPU0  CPU3\n 1: 5 6 x 7\n").unwrap();
        assert_eq!((&interrupts.cpu_ids[..], &interrupts.counts[..]), (&[0, 3][..], &[5, 6][..]));
    }

    #[test]
    fn text_of_another_form_is_refused() {
        for text in [
            "",
            "\n",
            "CPUx\n",
            " CPU0\nNET_RX: 1\n",
            " CPU0\nNET_RX 1\n",
            "CPU0 CPU1\nNET_RX: 1\nNET_TX: 1 2\n",
        ] {
            assert_eq!(SoftIrqs::default().parse_into(text), None, "{text:?}");
        }
        for text in ["", "x\n", "CPU0\nno colon\n"] {
            assert_eq!(Interrupts::default().parse_into(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_live_files_are_read() {
        let mut softirqs = SoftIrqReader::open().unwrap();
        assert!(!softirqs.sample().unwrap().cpu_ids.is_empty());
        match InterruptReader::open() {
            Ok(mut interrupts) => assert!(!interrupts.sample().unwrap().counts.is_empty()),
            Err(missing) => test_needs::skip(test_needs::KERNEL, missing),
        }
    }
}

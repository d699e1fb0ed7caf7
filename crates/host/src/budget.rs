//! Checks before the start that a run has enough descriptors and local ports.
//!
//! Pure arithmetic over figures that [`crate::limits`] and [`crate::sockets`] read. Every result
//! states its figures in words. This module neither raises limits nor decides to go on.

use record::units::format_plural;

/// Descriptors of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdBudget {
    /// Connections to be open at once.
    pub connections: u64,
    /// Descriptors for each of them: 1 for a client or an origin, 2 for a proxy.
    pub per_connection: u64,
    /// Descriptors for everything else; by default [`FdBudget::RESERVED`].
    pub reserved: u64,
    /// Maximum for the soft limit: [`crate::limits::Limits::nofile_hard`].
    pub nofile_hard: u64,
    /// `fs.nr_open`: the upper bound for the limit of any process.
    pub nr_open: Option<u64>,
    /// `fs.file-max` minus the files that are open on the machine now.
    pub machine_free: Option<u64>,
}

/// There are not enough descriptors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdShortage {
    pub needed: u64,
    /// Descriptors that the run can have.
    pub available: u64,
    /// Maximum number of connections that would fit.
    pub connections_possible: u64,
    pub text: String,
}

impl std::fmt::Display for FdShortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FdShortage {}

impl FdBudget {
    /// Descriptors that a weir process has open besides its connections, rounded up.
    pub const RESERVED: u64 = 64;

    /// Returns a client's budget: one descriptor per connection, limited only by the process.
    #[must_use]
    pub fn client(connections: u64, nofile_hard: u64) -> Self {
        Self {
            connections,
            per_connection: 1,
            reserved: Self::RESERVED,
            nofile_hard,
            nr_open: None,
            machine_free: None,
        }
    }

    /// Checks the budget: needed = connections × per connection + reserved; available = the minimum
    /// of the limits.
    pub fn check(&self) -> Result<(), FdShortage> {
        let connection_fds = self.connections.saturating_mul(self.per_connection);
        let needed = connection_fds.saturating_add(self.reserved);
        let bounds = [
            (Some(self.nofile_hard), "hard limit of open files (ulimit -Hn)"),
            (self.nr_open, "fs.nr_open"),
            (self.machine_free, "fs.file-max minus the open files"),
        ];
        let known = bounds.iter().filter_map(|&(bound, name)| Some((bound?, name)));
        let (available, name) = known.min_by_key(|(bound, _)| *bound).unwrap_or((u64::MAX, ""));
        if needed <= available {
            return Ok(());
        }
        let spare = available.saturating_sub(self.reserved);
        let connections_possible = spare / self.per_connection.max(1);
        let text = format!(
            "{} × {} + {} reserved need {needed} file descriptors, {available} are available ({name}): \
             max {}",
            format_plural(self.connections, "connection"),
            self.per_connection,
            self.reserved,
            format_plural(connections_possible, "connection"),
        );
        Err(FdShortage { needed, available, connections_possible, text })
    }
}

/// Local ports of connections to one target, one (address, port).
///
/// A connection holds one port of one source address while it is open. The side that closes first
/// keeps the port another 60 s in TIME_WAIT (the kernel's `TCP_TIMEWAIT_LEN`, not tunable;
/// `tcp_fin_timeout` is something else). If ports are reused, it keeps the port until
/// `reuse_delay_ms` has passed. So the maximum rate of new connections is ports × source addresses
/// ÷ that time.
#[derive(Debug, Clone, PartialEq)]
pub struct PortBudget {
    /// Number of simultaneously open connections.
    pub connections: u64,
    /// New connections per second that this side closes; `None` if connections stay open for the
    /// run.
    pub new_connections_per_s: Option<f64>,
    /// Duration of the run in seconds; `None` counts as longer than TIME_WAIT.
    pub duration_s: Option<f64>,
    /// Number of source addresses that connections are spread over, at least 1.
    pub source_addresses: u32,
    /// First and last local port ([`crate::limits::Limits::port_range`]).
    pub port_range: (u16, u16),
    /// Ports of the range that are reserved.
    pub reserved_ports: u32,
    /// Connections to the target that are in TIME_WAIT or open now ([`crate::sockets::count_connections_to`]).
    pub ports_in_use: u64,
    /// `net.ipv4.tcp_tw_reuse`: 0 off, 1 on, 2 on for loopback only.
    pub tw_reuse: u8,
    /// `net.ipv4.tcp_tw_reuse_delay`, in milliseconds; 1000 where the kernel has no such setting.
    pub reuse_delay_ms: u32,
    /// True if TCP timestamps are on. Without them ports are not reused.
    pub timestamps: bool,
    /// True if the target is a loopback address.
    pub loopback: bool,
}

/// Result of a [`PortBudget`] check.
#[derive(Debug, Clone, PartialEq)]
pub enum PortCheckResult {
    Fits,
    /// The ports are probably enough, with little margin or only because they are reused at once.
    Tight {
        reason: String,
    },
    /// Connections will fail with "Cannot assign requested address".
    Impossible {
        /// The figures, and a remedy.
        reason: String,
    },
}

/// The figures behind a [`PortCheckResult`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PortEstimate {
    /// Pairs of local address and port for the target.
    pub ports: u64,
    /// Seconds until the port of a closed connection is free again.
    pub hold_s: f64,
    /// True if ports in TIME_WAIT are reused, which shortens `hold_s`.
    pub reuse: bool,
    /// Maximum new connections per second besides those that stay open.
    pub new_connections_max_per_s: f64,
    /// Maximum number of ports that the run holds at once, open and in TIME_WAIT.
    pub needed: f64,
}

/// The kernel's `TCP_TIMEWAIT_LEN`.
pub const TIME_WAIT_S: f64 = 60.0;
/// Fraction of ports in use above which finding a free port costs time and the next burst may fail.
pub const TIGHT_FRACTION: f64 = 0.9;

impl PortBudget {
    /// Computes the figures, without a verdict.
    pub fn estimate(&self) -> PortEstimate {
        let range = u64::from(self.port_range.1).saturating_sub(u64::from(self.port_range.0)) + 1;
        let usable = range.saturating_sub(u64::from(self.reserved_ports));
        let ports = usable * u64::from(self.source_addresses.max(1));
        let allowed = self.tw_reuse == 1 || (self.tw_reuse == 2 && self.loopback);
        let reuse = allowed && self.timestamps;
        let hold_s = if reuse { f64::from(self.reuse_delay_ms) / 1000.0 } else { TIME_WAIT_S };
        let spare = ports.saturating_sub(self.connections) as f64;
        let new_connections_max_per_s = if hold_s > 0.0 { spare / hold_s } else { f64::INFINITY };
        let window_s = self.duration_s.map_or(hold_s, |duration| hold_s.min(duration.max(0.0)));
        let closed = self.new_connections_per_s.unwrap_or(0.0).max(0.0) * window_s;
        let needed = self.connections as f64 + closed;
        PortEstimate { ports, hold_s, reuse, new_connections_max_per_s, needed }
    }

    /// Checks that the run finds a port for every connection.
    pub fn check(&self) -> PortCheckResult {
        let estimate = self.estimate();
        let ports = estimate.ports as f64;
        let text = self.text(&estimate);
        if estimate.needed > ports {
            let reason = format!("{text}. {}", self.remedy(&estimate));
            return PortCheckResult::Impossible { reason };
        }
        // Ports that others hold become free within TIME_WAIT, or at once where they are reused.
        let total_needed = estimate.needed + self.ports_in_use as f64;
        if total_needed > ports && !estimate.reuse {
            let reason = format!(
                "{text}. Together with the ports in use: {total_needed:.0}. Wait 60 s for \
                 these, or {}",
                self.remedy(&estimate)
            );
            return PortCheckResult::Impossible { reason };
        }
        if total_needed > ports * TIGHT_FRACTION {
            return PortCheckResult::Tight { reason: text };
        }
        PortCheckResult::Fits
    }

    fn text(&self, estimate: &PortEstimate) -> String {
        let (first, last) = self.port_range;
        let sources = format_plural(u64::from(self.source_addresses.max(1)), "source address");
        let rate = self.new_connections_per_s.map_or_else(String::new, |rate| {
            format!(" and {rate:.0} new connections/s, each in TIME_WAIT for {} s", estimate.hold_s)
        });
        let reuse_text = if estimate.reuse { "with reuse" } else { "without reuse" };
        format!(
            "{} connections{rate} need {:.0} local ports at once; {} exist ({first}-{last} minus \
             {} reserved, × {sources}), {} in use; {reuse_text} of ports in \
             TIME_WAIT they allow {:.0} new connections/s to one target",
            self.connections,
            estimate.needed,
            estimate.ports,
            self.reserved_ports,
            self.ports_in_use,
            estimate.new_connections_max_per_s,
        )
    }

    fn remedy(&self, estimate: &PortEstimate) -> String {
        let mut remedies = vec!["use more source addresses"];
        if self.new_connections_per_s.is_some() {
            remedies.insert(0, "use keep-alive");
        }
        if !estimate.reuse {
            remedies.push(if self.timestamps {
                "set net.ipv4.tcp_tw_reuse = 1"
            } else {
                "set net.ipv4.tcp_tw_reuse = 1 and net.ipv4.tcp_timestamps = 1"
            });
        }
        if u32::from(self.port_range.1) - u32::from(self.port_range.0.min(self.port_range.1)) < WIDE_RANGE {
            remedies.push("widen net.ipv4.ip_local_port_range");
        }
        remedies.join(", or ")
    }
}

/// Size of a range of about "1024 65535".
const WIDE_RANGE: u32 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> PortBudget {
        PortBudget {
            connections: 100,
            new_connections_per_s: None,
            duration_s: None,
            source_addresses: 1,
            port_range: (32768, 60999),
            reserved_ports: 0,
            ports_in_use: 0,
            tw_reuse: 0,
            reuse_delay_ms: 1000,
            timestamps: true,
            loopback: false,
        }
    }

    fn verdict_name(budget: &PortBudget) -> &'static str {
        match budget.check() {
            PortCheckResult::Fits => "fits",
            PortCheckResult::Tight { .. } => "tight",
            PortCheckResult::Impossible { .. } => "impossible",
        }
    }

    #[test]
    fn descriptors_are_checked_against_the_lowest_limit() {
        assert_eq!(FdBudget::client(19_936, 20_000).check(), Ok(()));
        let shortage = FdBudget::client(19_937, 20_000).check().unwrap_err();
        assert_eq!((shortage.needed, shortage.available), (20_001, 20_000));
        assert_eq!(shortage.connections_possible, 19_936);
        assert!(shortage.text.contains("ulimit -Hn"), "{shortage}");

        let proxy = FdBudget {
            per_connection: 2,
            nr_open: Some(1_000),
            machine_free: Some(5_000),
            ..FdBudget::client(500, u64::MAX)
        };
        let shortage = proxy.check().unwrap_err();
        assert_eq!((shortage.needed, shortage.connections_possible), (1_064, 468));
        assert!(shortage.text.contains("fs.nr_open"), "{shortage}");
        assert!(FdBudget::client(u64::MAX, 20_000).check().is_err());
        assert!(FdBudget::client(1, 10).check().is_err());
    }

    #[test]
    fn the_ceiling_is_range_over_time_wait() {
        // lab: 28,232 ports / 60 s = 470 new connections a second.
        let idle = PortBudget { connections: 0, ..ports() };
        assert_eq!(idle.estimate().ports, 28_232);
        assert!((idle.estimate().new_connections_max_per_s - 470.53).abs() < 0.01);
        let reused = PortBudget { tw_reuse: 1, ..idle.clone() };
        assert!((reused.estimate().new_connections_max_per_s - 28_232.0).abs() < 1e-9);
        let two = PortBudget { source_addresses: 2, ..idle };
        assert!((two.estimate().new_connections_max_per_s - 941.07).abs() < 0.01);
    }

    #[test]
    fn reuse_needs_the_setting_loopback_and_timestamps() {
        let check = |tw_reuse, loopback, timestamps, reuse| {
            let budget = PortBudget { tw_reuse, loopback, timestamps, ..ports() };
            assert_eq!(budget.estimate().reuse, reuse, "{tw_reuse} {loopback} {timestamps}");
        };
        check(0, true, true, false);
        check(1, false, true, true);
        check(1, false, false, false);
        check(2, false, true, false);
        check(2, true, true, true);
        check(2, true, false, false);
    }

    #[test]
    fn open_connections_alone_can_be_too_many() {
        assert_eq!(verdict_name(&PortBudget { connections: 25_000, ..ports() }), "fits");
        assert_eq!(verdict_name(&PortBudget { connections: 26_000, ..ports() }), "tight");
        assert_eq!(verdict_name(&PortBudget { connections: 28_232, ..ports() }), "tight");
        assert_eq!(verdict_name(&PortBudget { connections: 28_233, ..ports() }), "impossible");
        assert_eq!(verdict_name(&PortBudget { reserved_ports: 28_200, ..ports() }), "impossible");
    }

    #[test]
    fn new_connections_fill_the_range_unless_the_run_is_short() {
        let fast = PortBudget { new_connections_per_s: Some(1_000.0), ..ports() };
        assert_eq!(verdict_name(&fast), "impossible");
        assert_eq!(verdict_name(&PortBudget { duration_s: Some(10.0), ..fast.clone() }), "fits");
        assert_eq!(verdict_name(&PortBudget { tw_reuse: 1, ..fast.clone() }), "fits");
        assert_eq!(verdict_name(&PortBudget { source_addresses: 3, ..fast.clone() }), "fits");
        let PortCheckResult::Impossible { reason } = fast.check() else { unreachable!() };
        for part in ["60100", "28232", "469 new connections/s", "tcp_tw_reuse = 1", "widen"] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
    }

    #[test]
    fn what_others_left_in_time_wait_counts_unless_reused() {
        let busy = PortBudget { ports_in_use: 28_200, ..ports() };
        assert_eq!(verdict_name(&busy), "impossible");
        assert_eq!(verdict_name(&PortBudget { tw_reuse: 2, loopback: true, ..busy }), "tight");
    }
}

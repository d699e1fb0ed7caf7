//! The processes of a verification: one `weir serve` with an address for each server, and one proxy before it.
//! They end with this process in every case.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use host::trusted_dir::TrustedDir;
use plan::verification::VerifiedPlan;
use record::problem::InputProblem;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::foreign_process::ForeignProcess;
use super::haproxy::HaproxyProcess;
use super::sampler::GaugeSource;
use super::subject::VerifySubject;
use super::{PhaseLengths, stall_connections};
use crate::failure::Failure;

/// Timeout and limit of the queue without shedding.
const OPEN_QUEUE: &str = "limit = 1000000, timeout = \"10m\", order = \"oldest-first\"";

/// Minimum of the client connections that a subject is configured for.
const CONNECTIONS_MIN: f64 = 8_000.0;

enum ProxyProcess {
    Weir {
        process: ChildProcess,
        _directory: TempDir,
    },
    Haproxy(HaproxyProcess),
    Foreign(ForeignProcess),
    /// Started by somebody else.
    Running,
}

/// Running origin and proxy.
pub(super) struct Setup {
    // The proxy ends before its servers.
    proxy: ProxyProcess,
    origin: ChildProcess,
    base_url: String,
    gauges: GaugeSource,
    lengths: PhaseLengths,
    /// Reports the phases.
    notice: fn(&str),
}

impl Setup {
    /// Starts both on ports that the kernel chooses.
    pub(super) fn start(
        plan: &VerifiedPlan,
        subject: &VerifySubject,
        lengths: PhaseLengths,
        notice: fn(&str),
    ) -> Result<Self, Failure> {
        let mut serve = vec!["serve".to_owned(), "--threads".to_owned(), "1".to_owned()];
        for address in origin_addresses(plan, subject)? {
            serve.extend(["--listen".to_owned(), address]);
        }
        let (origin, servers) = ChildProcess::start(&serve, plan.servers as usize)?;
        let stats = || match servers[0].parse::<std::net::SocketAddr>() {
            Ok(address) => Ok(GaugeSource::Origin(address)),
            Err(error) => Err(Failure::cannot("the address of the servers", error)),
        };
        let (proxy, base_url, gauges) = match subject {
            VerifySubject::Weir => start_weir(plan, &servers)?,
            VerifySubject::Haproxy => {
                let (proxy, address) = HaproxyProcess::start(plan, &servers)?;
                let gauges = GaugeSource::Haproxy(proxy.socket());
                (ProxyProcess::Haproxy(proxy), format!("http://{address}"), gauges)
            }
            VerifySubject::Program(program, _) => {
                let connections = stall_connections(plan).max(CONNECTIONS_MIN) as u64;
                let (process, address) = ForeignProcess::start(program, plan, (&servers, connections))?;
                (ProxyProcess::Foreign(process), format!("http://{address}"), stats()?)
            }
            VerifySubject::Running(running, _) => (ProxyProcess::Running, running.url.clone(), stats()?),
        };
        Ok(Self { proxy, origin, base_url, gauges, lengths, notice })
    }

    /// Returns an error if a subject that weir started has ended.
    pub(super) fn check_subject(&mut self) -> Result<(), Failure> {
        match &mut self.proxy {
            ProxyProcess::Foreign(process) => process.check(),
            _ => Ok(()),
        }
    }

    /// Keeps the output of a subject that weir started, and returns the reason with the end of it.
    pub(super) fn subject_failure(&mut self, why: &str) -> Failure {
        match &mut self.proxy {
            ProxyProcess::Foreign(process) => process.failure(why),
            _ => Failure::cannot("--verify", why),
        }
    }

    pub(super) fn base_url(&self) -> &str {
        &self.base_url
    }

    pub(super) fn gauges(&self) -> GaugeSource {
        self.gauges.clone()
    }

    pub(super) fn lengths(&self) -> PhaseLengths {
        self.lengths
    }

    pub(super) fn notice(&self, text: &str) {
        (self.notice)(text);
    }

    /// Stops all servers until the value is dropped.
    pub(super) fn stall_servers(&self) -> Stalled<'_> {
        self.origin.signal(Signal::STOP);
        Stalled(&self.origin)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        match &mut self.proxy {
            ProxyProcess::Weir { process, .. } => process.end(),
            ProxyProcess::Haproxy(process) => process.end(),
            ProxyProcess::Foreign(process) => process.end(),
            ProxyProcess::Running => {}
        }
        self.origin.end();
    }
}

/// Servers that are stopped.
pub(super) struct Stalled<'a>(&'a ChildProcess);

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

fn origin_addresses(plan: &VerifiedPlan, subject: &VerifySubject) -> Result<Vec<String>, Failure> {
    let VerifySubject::Running(running, _) = subject else {
        return Ok(vec!["127.0.0.1:0".to_owned(); plan.servers as usize]);
    };
    let (given, servers) = (running.origins.len() as u64, plan.servers);
    if given != servers {
        let text = format!(
            "the verified plan has {} of {} slots, {given} given",
            record::units::format_plural(servers, "server"),
            plan.maxconn
        );
        return Err(vec![InputProblem::new("--origin-listen", text)].into());
    }
    Ok(running.origins.clone())
}

/// Creates a private directory for the files of a subject, which its value removes. A program that drops its
/// privileges can still open files in it.
pub(super) fn run_directory() -> Result<TempDir, Failure> {
    let subject = "the directory of the subject";
    let parent = std::env::temp_dir().canonicalize().map_err(|error| Failure::cannot(subject, error))?;
    if rustix::process::geteuid().is_root() {
        // Root may have the TMPDIR of another user (sudo), who could replace the files.
        TrustedDir::open_shared(&parent).map_err(|error| Failure::cannot(subject, error))?;
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix("weir-plan-").permissions(Permissions::from_mode(0o711));
    builder.tempdir_in(parent).map_err(|error| Failure::cannot(subject, error))
}

/// Starts weir proxy; returns it with its URL and its gauges.
fn start_weir(
    plan: &VerifiedPlan,
    servers: &[String],
) -> Result<(ProxyProcess, String, GaugeSource), Failure> {
    let directory = run_directory()?;
    let config = directory.path().join("weir.toml");
    record::file::write_atomically(&config, proxy_config(plan, servers).as_bytes())?;
    let proxy = vec!["proxy".to_owned(), "--config".to_owned(), config.display().to_string()];
    let (process, urls) = ChildProcess::start(&proxy, 2)?;
    let admin = urls[1].parse().map_err(|error| Failure::cannot("the proxy's admin address", error))?;
    let proxy = ProxyProcess::Weir { process, _directory: directory };
    Ok((proxy, format!("http://{}", urls[0]), GaugeSource::Metrics(admin)))
}

fn proxy_config(plan: &VerifiedPlan, servers: &[String]) -> String {
    let listed =
        servers.iter().map(|address| format!("{{ address = \"{address}\", maxconn = {} }}", plan.maxconn));
    let listed = listed.collect::<Vec<_>>().join(", ");
    let bounded =
        format!("limit = {}, timeout = \"{:.0}ms\"", plan.queue_limit, (plan.queue_s * 1e3).max(1.0));
    let pool = |name: &str, queue: &str| {
        format!(
            "[[route]]\npath-prefix = \"/{name}\"\npool = \"{name}\"\n[pool.{name}]\nqueue = {{ {queue} }}\n\
             servers = [{listed}]\ntimeouts = {{ first-byte = \"10m\" }}\nretries = 0\n\
             outlier = {{ failures = 0 }}\n"
        )
    };
    format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n{}{}",
        pool("open", OPEN_QUEUE),
        pool("bounded", &bounded)
    )
}

/// Child that ends when its stdin closes.
struct ChildProcess {
    child: Child,
    pid: Option<Pid>,
}

impl ChildProcess {
    /// Starts weir with these arguments, and reads `addresses` addresses from its output.
    fn start(arguments: &[String], addresses: usize) -> Result<(Self, Vec<String>), Failure> {
        let name = format!("weir {}", arguments[0]);
        let failed = |why: &dyn std::fmt::Display| Failure::cannot(&name, why);
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut child = Command::new(program)
            .args(arguments)
            .arg("--until-stdin-closes")
            .env(record::control::NO_DEFAULTS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let stdout = child.stdout.take();
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let mut process = Self { child, pid };
        let mut found = Vec::new();
        let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        for line in lines.map_while(Result::ok) {
            let url = line.split_whitespace().find_map(|word| word.strip_prefix("http://"));
            found.extend(url.map(|url| url.trim_end_matches('/').to_owned()));
            if found.len() == addresses {
                // Nobody reads its messages from here on; it ignores a closed stderr.
                drop(process.child.stderr.take());
                return Ok((process, found));
            }
        }
        let mut why = String::new();
        if let Some(mut stderr) = process.child.stderr.take() {
            // Without its message only the failed start can be reported.
            let _ = stderr.read_to_string(&mut why);
        }
        process.end();
        Err(failed(&format!("it did not start: {}", why.trim())))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // It is our child and not reaped, so the id is its own.
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends it: closes its stdin, and kills it if it does not drain in time.
    fn end(&mut self) {
        let child = &mut self.child;
        drop(child.stdin.take());
        for _ in 0..50 {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        // It may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
    }
}

//! The flags of `weir calibrate`: the profile of the load, and the number of trials.

use load::plan::{LoadFlags, TlsFlags, XdpFlags};
use record::invalid_value;
use record::problem::InvalidValue;
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns, parse_size};
use runner::embedded::CLIENT_INTERFACE;

use super::http::HttpVersionFlags;
use super::load::{CONNECTIONS, DATA, HEADER, JSON, METHOD, PIN, REQUESTS_PER_CONNECTION, TIMEOUT, body_of};
use super::tls::{TlsHandshakeFlags, TlsSuiteFlags};
use super::{CommandFlags, CommandInfo, Destination, all_of, command_flags, flag, switch};

pub(crate) const CALIBRATE: CommandInfo = CommandInfo {
    name: "calibrate",
    about: "Measure the maximum load that this machine can generate",
    doc: "Starts an origin and drives it at full speed, alternating between one thread and all \
          threads, in several trials. Reports the capacity of one core and of all cores, with the \
          spread. Stores the result for this host, so that `weir load` can compare its runs with \
          it.",
    values: None,
    flags: CalibrateFlags::FLAGS,
    examples: &[(
        "weir calibrate -c 50 --trials 1 --trial-time 1s --target 2M",
        "number of such machines for two million requests per second",
    )],
};

command_flags! {
    pub(crate) struct CalibrateFlags {
        connections: Option<String> = CONNECTIONS.text(),
        body_bytes: u64 = flag("size", "SIZE")
            .default("100")
            .values(&["0", "10k"], &["x"])
            .doc("Size of the response bodies")
            .parsed_or(parse_size, 100),
        requests_per_connection: Option<String> = REQUESTS_PER_CONNECTION.text(),
        method: Option<String> = METHOD.text(),
        headers: Vec<String> = HEADER.texts(),
        data: Option<String> = DATA.text(),
        timeout: Option<String> = TIMEOUT.text(),
        pin: Option<String> = PIN.text(),
        tls: bool = switch("tls")
            .doc(
                "Calibrate with TLS, for later loads of https URLs: a calibration without TLS says \
                 nothing about them",
            )
            .is_given(),
        xdp: bool = switch("xdp")
            .doc(
                "Calibrate TCP in user space over AF_XDP, for later loads with --xdp: over a virtual link in network \
                 namespaces of its own, whose packets are copied. Needs root",
            )
            .is_given(),
        tls_handshakes: TlsHandshakeFlags = all_of::<TlsHandshakeFlags>(),
        versions: HttpVersionFlags = all_of::<HttpVersionFlags>(),
        tls_suites: TlsSuiteFlags = all_of::<TlsSuiteFlags>(),
        trials_per_kind: u64 = flag("trials", "N")
            .default("5")
            .values(&["3"], &["0", "1000", "x"])
            .doc("Trials per thread count")
            .parsed_or(parse_trials, 5),
        trial_ns: u64 = flag("trial-time", "TIME")
            .default("2s")
            .values(&["1"], &["0", "10ms", "x"])
            .doc("Duration of a trial, 1 s or more; default unit: s")
            .parsed_or(parse_trial_ns, 2 * SECOND_NS),
        target_per_s: Option<u64> = flag("target", "RATE")
            .values(&["2M"], &["x", "0"])
            .doc("Target rate; prints the number of such machines that it needs")
            .parsed(parse_target),
        json: Destination = JSON.destination(),
    }
}

fn parse_trials(text: &str) -> Result<u64, InvalidValue> {
    let trials = parse_count(text)?;
    if (1..=100).contains(&trials) { Ok(trials) } else { Err(invalid_value!("1 to 100 trials")) }
}

fn parse_trial_ns(text: &str) -> Result<u64, InvalidValue> {
    let ns = parse_duration_ns(text, DurationUnit::Seconds)?;
    let within = (SECOND_NS..=60 * SECOND_NS).contains(&ns);
    if within { Ok(ns) } else { Err(invalid_value!("a trial takes 1s to 60s")) }
}

fn parse_target(text: &str) -> Result<u64, InvalidValue> {
    match parse_count(text)? {
        0 => Err(invalid_value!("must be above 0")),
        target => Ok(target),
    }
}

impl CalibrateFlags {
    /// Returns the texts of the calibrated load's flags, for requests to `url`.
    pub(crate) fn load_flags(&self, url: String) -> LoadFlags {
        let mut problems = Vec::new();
        let (data, data_file) = body_of(self.data.clone(), None, &mut problems);
        LoadFlags {
            urls: vec![url],
            connections: self.connections.clone(),
            requests_per_connection: self.requests_per_connection.clone(),
            method: self.method.clone(),
            headers: self.headers.clone(),
            data,
            data_file,
            problems,
            timeout: self.timeout.clone(),
            pin: self.pin.clone(),
            // The certificate of the embedded origin is self-signed.
            tls: TlsFlags { insecure: self.tls, ..self.tls_texts() },
            http: self.versions.texts(),
            threads: Some("1".to_owned()),
            xdp: XdpFlags { interface: self.xdp.then(|| CLIENT_INTERFACE.to_owned()), exposed: false },
            ..LoadFlags::default()
        }
    }

    fn tls_texts(&self) -> TlsFlags {
        let mut texts = TlsFlags::default();
        self.tls_handshakes.add_to(&mut texts);
        self.tls_suites.add_to(&mut texts);
        texts
    }
}

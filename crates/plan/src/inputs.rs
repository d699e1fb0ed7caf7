//! The table of the inputs: one row each, for the flags, the plan file and the records. And the
//! inputs of a plan, each with its source.

use std::collections::BTreeMap;

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{
    DurationUnit, SECOND_NS, format_bit_rate, format_bytes, format_duration_ns, format_rate, parse_count,
    parse_duration_ns, parse_fraction, parse_limit_ns, parse_rate, parse_size, round_to_digits,
};
use serde::Serialize;

use crate::backend::{Backend, parse_scaling};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Events per second.
    Rate,
    /// Time; the value is in s.
    Time,
    Count,
    Number,
    Bytes,
    /// Fraction of 1.
    Fraction,
    /// Bits per second.
    BitRate,
    /// Percentile and its limit: `p99<50ms`.
    Objective,
    /// Backends: `app=18x2`.
    Backends,
    /// Rates by the number of cores: `1:9185,4:28157`.
    Scaling,
}

#[derive(Debug)]
pub struct InputSpec {
    /// Name of the flag, without dashes, and of the key in a plan file.
    pub name: &'static str,
    pub kind: InputKind,
    pub value: &'static str,
    /// Default, as a value; empty: none.
    pub default: &'static str,
    pub default_source: &'static str,
    pub doc: &'static str,
    /// Smallest and largest value.
    pub range: (f64, f64),
    /// Valid values; the reference shows the first.
    pub valid: &'static [&'static str],
    pub invalid: &'static [&'static str],
}

const DAY_S: f64 = 86_400.0;

/// Builds the rows of [`INPUTS`].
macro_rules! inputs {
    ($($name:literal $kind:ident $value:literal = $default:literal ($source:literal) in $range:expr,
        $valid:expr, $invalid:expr, $doc:literal;)*) => {
        &[$(InputSpec {
            name: $name,
            kind: InputKind::$kind,
            value: $value,
            default: $default,
            default_source: $source,
            doc: $doc,
            range: $range,
            valid: &$valid,
            invalid: &$invalid,
        }),*]
    };
}

/// All inputs, in the order of the help.
pub const INPUTS: &[InputSpec] = inputs! {
    "rate" Rate "RATE" = "" ("") in (1e-3, 1e9), ["4k"], ["x", "0"], "Requests per second at the peak";
    "service" Time "TIME" = "" ("") in (1e-6, DAY_S), ["20ms", "0.5s"], ["x", "0"], "Mean response time of a server that no other request occupies; default unit: ms";
    "service-cv" Number "NUMBER" = "1" ("exponential service times") in (0.0, 10.0), ["0.5"], ["x", "11"], "Coefficient of variation of the service time: 0 is constant, 1 exponential";
    "arrival-cv" Number "NUMBER" = "1" ("independent clients") in (0.0, 10.0), ["0"], ["x", "11"], "Coefficient of variation of the time between requests: 0 is constant, 1 Poisson";
    "slo" Objective "OBJECTIVE" = "" ("") in (0.0, 0.0), ["p99<50ms"], ["p99", "x<1s", "p99<0", "p99<50", "p999<50ms"], "Objective of the response time, with the time in the queue";
    "backend" Backends "[NAME=]SERVERSxMAXCONN" = "" ("") in (0.0, 0.0), ["app=18x2", "240x1", "pulse=3", "app=2x50,rate=500,service=20ms"], ["x", "0x1"], "Backend, repeatable: its servers, and the concurrent requests of each; without a limit it is unbounded; optional: its own rate and service time";
    "servers" Count "N" = "" ("") in (1.0, 1e5), ["18"], ["0", "x"], "Servers behind the proxy, if there is one backend";
    "maxconn" Count "N" = "" ("") in (1.0, 1e6), ["50"], ["0", "x"], "Concurrent requests of each of these servers";
    "server-rate" Rate "RATE" = "" ("") in (1e-3, 1e9), ["1.2k"], ["0", "x"], "Highest rate of one server within its objective, as weir edge finds it";
    "server-connections" Count "N" = "" ("") in (1.0, 1e6), ["64"], ["0", "x"], "Concurrent requests of one server with its highest throughput, as the scaling law of weir edge finds it";
    "spare" Count "N" = "1" ("N+1") in (0.0, 1e5), ["2"], ["x"], "Servers, and proxies, that may fail";
    "headroom" Fraction "FRACTION" = "0.3" ("20 to 50 % above the mean") in (0.0, 10.0), ["50%"], ["x"], "Connections above the computed mean";
    "queue-time" Time "TIME" = "" ("") in (1e-6, DAY_S), ["5s", "100ms"], ["x", "0"], "Maximum time in the queue; default unit: ms; without it: the time that objective and client timeout leave";
    "client-timeout" Time "TIME" = "5s" ("default of weir load") in (1e-6, DAY_S), ["2s"], ["x", "0"], "Time after which clients give up; default unit: ms";
    "retries" Count "N" = "0" ("no retries") in (0.0, 100.0), ["3"], ["x", "101"], "Retries of a client, or of a load balancer in front, after a timeout";
    "requests-per-connection" Number "N" = "" ("") in (1.0, 1e9), ["100"], ["0", "x"], "Requests that a client sends on a connection";
    "keep-alive" Time "TIME" = "60s" ("default of weir proxy") in (0.0, DAY_S), ["10s"], ["x"], "Time that an idle client connection stays open; default unit: ms";
    "connections" Count "N" = "" ("") in (1.0, 1e9), ["20k"], ["0", "x"], "Client connections that are open at once, as measured";
    "request-size" Bytes "SIZE" = "500" ("a typical head") in (1.0, 1e12), ["1k"], ["x"], "Bytes of a request";
    "response-size" Bytes "SIZE" = "" ("") in (1.0, 1e12), ["7405"], ["x"], "Bytes of a response, head included";
    "link" BitRate "BITS" = "" ("") in (1.0, 1e15), ["10G"], ["x"], "Bits per second of the link, in each direction";
    "tls" Fraction "FRACTION" = "0" ("no TLS") in (0.0, 1.0), ["100%"], ["x", "2"], "Fraction of the client connections with TLS";
    "tls-resume" Fraction "FRACTION" = "0" ("every handshake is a full one") in (0.0, 1.0), ["90%"], ["x"], "Fraction of these that resume a session";
    "handshake-cpu" Time "TIME" = "1ms" ("RSA 2048; measure it with bench/run tls") in (1e-9, 10.0), ["250us"], ["x", "0"], "CPU time of a full TLS handshake; default unit: ms";
    "resumption-cpu" Time "TIME" = "150us" ("measure it with bench/run tls") in (1e-9, 10.0), ["100us"], ["x", "0"], "CPU time of a resumed TLS handshake; default unit: ms";
    "request-cpu" Time "TIME" = "15us" ("weir proxy, 100 B: 11 to 18 us, docs/guide.md") in (1e-9, 1000.0), ["40us"], ["x", "0"], "CPU time of the proxy for a request; default unit: ms";
    "utilisation" Fraction "FRACTION" = "0.7" ("headroom for bursts") in (0.01, 1.0), ["50%"], ["x", "0"], "Highest planned utilisation of the cores";
    "cores" Count "N" = "" ("") in (1.0, 1e5), ["8"], ["0", "x"], "Cores of one proxy machine";
    "scaling" Scaling "CORES:RATE,..." = "" ("") in (0.0, 0.0), ["1:9185,4:28157,8:30310"], ["x", "1:0"], "Measured rates by the number of cores, for the scaling law";
    "memory" Bytes "SIZE" = "" ("") in (1e6, 1e15), ["4g"], ["x"], "Memory of one proxy machine";
    "idle-memory" Bytes "SIZE" = "580" ("weir proxy, measured: bench/run memory") in (0.0, 1e9), ["690"], ["x"], "Bytes of the proxy for an idle connection";
    "request-memory" Bytes "SIZE" = "1960" ("weir proxy, measured: bench/run proxy, case memory") in (0.0, 1e9), ["5k"], ["x"], "Bytes of the proxy for a request in flight, both sides";
    "tls-memory" Bytes "SIZE" = "4200" ("weir proxy, measured: bench/run tls") in (0.0, 1e9), ["14k"], ["x"], "Additional bytes of a connection with TLS";
    "socket-memory" Bytes "SIZE" = "4k" ("Linux 6.18, measured: slab of idle sockets") in (0.0, 1e9), ["8k"], ["x"], "Bytes of the kernel for a socket";
    "fd-limit" Count "N" = "" ("") in (1.0, 1e9), ["20000"], ["0", "x"], "Limit of file descriptors of the proxy";
    "ports" Count "N" = "28232" ("ip_local_port_range 32768 60999") in (1.0, 65535.0), ["64000"], ["0", "x"], "Source ports of each source address";
    "source-addresses" Count "N" = "1" ("one address") in (1.0, 1e5), ["4"], ["0", "x"], "Source addresses of the proxy towards its servers";
    "server-requests" Number "N" = "" ("") in (1.0, 1e9), ["1"], ["0", "x"], "Requests on a connection to a server, if connections are not kept";
    "time-wait" Time "TIME" = "60s" ("Linux: TCP_TIMEWAIT_LEN") in (0.0, 3600.0), ["1s"], ["x"], "Time that a closed connection holds its port; default unit: ms";
    "client-rate" Rate "RATE" = "" ("") in (1e-3, 1e9), ["120k"], ["0", "x"], "Highest rate of one load generator, as weir calibrate finds it";
    "stall" Time "TIME" = "5s" ("the queue of the servers' stall") in (1e-3, 3600.0), ["10s"], ["x", "0"], "Stall of all servers from which the plan has to recover; default unit: ms";
    "overload" Number "NUMBER" = "3" ("three times the peak") in (1.0, 1000.0), ["2"], ["x", "0"], "Multiple of the rate that the plan has to survive";
};

pub fn spec(name: &str) -> Option<&'static InputSpec> {
    INPUTS.iter().find(|row| row.name == name)
}

/// Percentile and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ResponseObjective {
    /// Fraction of the requests that have to meet the limit: 0.99.
    pub quantile: f64,
    pub limit_s: f64,
}

impl ResponseObjective {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong = || invalid_value!("'{text}': write pNN<TIME, for example p99<50ms");
        let (percentile, limit) = text.split_once('<').ok_or_else(wrong)?;
        let digits = percentile.trim().strip_prefix('p').ok_or_else(wrong)?;
        let percent: f64 = digits.parse().map_err(|_| wrong())?;
        let quantile = percent / 100.0;
        let limit_s = parse_limit_ns(limit.trim())? as f64 / SECOND_NS as f64;
        let is_valid = (0.5..1.0).contains(&quantile) && limit_s > 0.0;
        is_valid.then_some(Self { quantile, limit_s }).ok_or_else(wrong)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum InputValue {
    /// Number, in s, bytes, bits per second or per second.
    Number(f64),
    Objective(ResponseObjective),
    Backends(Vec<Backend>),
    /// Points of a scaling law.
    Scaling(Vec<(f64, f64)>),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourcedValue {
    pub value: InputValue,
    /// Source: `flag --rate`, `run.json: rates.responses_per_s`.
    pub source: String,
}

/// Inputs of a plan. A value that is given twice keeps the first: flags are given before files, and
/// files before records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    values: BTreeMap<&'static str, SourcedValue>,
}

impl Inputs {
    /// Adds the texts of an input, from a flag or a file.
    ///
    /// # Errors
    /// A text is not a value of this input; the error says why.
    pub fn give_texts(&mut self, name: &str, texts: &[String], source: &str) -> Result<(), InvalidValue> {
        let row = spec(name).ok_or_else(|| invalid_value!("unknown input '{name}'"))?;
        let value = parse_texts(row, texts)?;
        self.give(row.name, value, source);
        Ok(())
    }

    pub fn give_number(&mut self, name: &'static str, value: f64, source: &str) {
        let in_range = spec(name).is_some_and(|row| (row.range.0..=row.range.1).contains(&value));
        if in_range {
            self.give(name, InputValue::Number(value), source);
        }
    }

    fn give(&mut self, name: &'static str, value: InputValue, source: &str) {
        self.values.entry(name).or_insert_with(|| SourcedValue { value, source: source.to_owned() });
    }

    pub fn get(&self, name: &str) -> Option<SourcedValue> {
        let row = spec(name)?;
        if let Some(given) = self.values.get(row.name) {
            return Some(given.clone());
        }
        if row.default.is_empty() {
            return None;
        }
        let value = parse_texts(row, &[row.default.to_owned()]).ok()?;
        Some(SourcedValue { value, source: format!("default: {}", row.default_source) })
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)?.value {
            InputValue::Number(value) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn default_number(&self, name: &str) -> f64 {
        self.number(name).unwrap_or_default()
    }

    pub fn is_given(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn objective(&self) -> Option<ResponseObjective> {
        match self.get("slo")?.value {
            InputValue::Objective(objective) => Some(objective),
            _ => None,
        }
    }

    /// Returns the backends; without any, one of `servers` and `maxconn`.
    pub fn backends(&self) -> Vec<Backend> {
        match self.get("backend").map(|given| given.value) {
            Some(InputValue::Backends(backends)) => backends,
            _ => Vec::new(),
        }
    }

    pub fn scaling(&self) -> Vec<(f64, f64)> {
        match self.get("scaling").map(|given| given.value) {
            Some(InputValue::Scaling(points)) => points,
            _ => Vec::new(),
        }
    }

    pub fn problems(&self) -> Vec<InputProblem> {
        let mut problems = Vec::new();
        let flag = |name: &str| format!("--{name}");
        if !self.is_given("rate") {
            let text = "missing: give it, or a record of weir load or weir edge that has it";
            problems.push(InputProblem::new(flag("rate"), text));
        }
        for name in ["servers", "maxconn"] {
            if self.is_given("backend") && self.is_given(name) {
                problems.push(InputProblem::new(flag(name), "not with --backend, which has it"));
            }
        }
        let backends = self.backends();
        for (index, backend) in backends.iter().enumerate() {
            if backends[..index].iter().any(|other| other.name == backend.name) {
                let text = format!("two backends are named '{}'", backend.name);
                problems.push(InputProblem::new(flag("backend"), text));
            }
        }
        problems
    }
}

fn parse_texts(row: &InputSpec, texts: &[String]) -> Result<InputValue, InvalidValue> {
    let first = texts.first().map_or("", String::as_str);
    let number = |value: Result<f64, InvalidValue>| {
        let value = value?;
        let (low, high) = row.range;
        if (low..=high).contains(&value) {
            return Ok(InputValue::Number(value));
        }
        Err(invalid_value!("{} to {} is allowed", format_value(row.kind, low), format_value(row.kind, high)))
    };
    match row.kind {
        InputKind::Rate | InputKind::Number => number(parse_rate(first)),
        InputKind::Count => number(parse_count(first).map(|count| count as f64)),
        InputKind::Bytes => number(parse_size(first).map(|bytes| bytes as f64)),
        InputKind::BitRate => number(parse_bit_rate(first)),
        InputKind::Fraction if row.range.1 > 1.0 => {
            number(record::units::parse_fraction_up_to(first, row.range.1))
        }
        InputKind::Fraction => number(parse_fraction(first)),
        InputKind::Time => {
            let ns = parse_duration_ns(first, DurationUnit::Milliseconds);
            number(ns.map(|ns| ns as f64 / SECOND_NS as f64))
        }
        InputKind::Objective => ResponseObjective::parse(first).map(InputValue::Objective),
        InputKind::Scaling => parse_scaling(first).map(InputValue::Scaling),
        InputKind::Backends if texts.len() > crate::backend::BACKENDS_MAX => {
            Err(invalid_value!("at most {} backends", crate::backend::BACKENDS_MAX))
        }
        InputKind::Backends => {
            let backends = texts.iter().enumerate();
            let backends = backends.map(|(index, text)| {
                Backend::parse(text, index + 1).map_err(|why| invalid_value!("'{text}': {why}"))
            });
            Ok(InputValue::Backends(backends.collect::<Result<_, _>>()?))
        }
    }
}

fn parse_bit_rate(text: &str) -> Result<f64, InvalidValue> {
    let number = text.strip_suffix("bit/s").or_else(|| text.strip_suffix("bit")).unwrap_or(text).trim();
    match number.strip_suffix(['G', 'g']) {
        Some(giga) => parse_rate(giga.trim()).map(|value| value * 1e9),
        None => parse_rate(number),
    }
}

pub fn format_value(kind: InputKind, value: f64) -> String {
    match kind {
        InputKind::Rate => format_rate(value),
        InputKind::Time => format_duration_ns((value * 1e9).round() as u64),
        InputKind::Count if value > 0.0 && value < 1.0 => format!("{value:.2}"),
        InputKind::Count => format!("{value:.0}"),
        InputKind::Bytes => format_bytes(value),
        InputKind::Fraction => format!("{} %", round_to_digits(value * 100.0, 3)),
        InputKind::BitRate => format_bit_rate(value),
        InputKind::Number => round_to_digits(value, 4).to_string(),
        InputKind::Objective | InputKind::Backends | InputKind::Scaling => {
            format!("{value}")
        }
    }
}

pub fn format_input(name: &str, value: &InputValue) -> String {
    match value {
        InputValue::Number(number) => {
            format_value(spec(name).map_or(InputKind::Number, |row| row.kind), *number)
        }
        InputValue::Objective(objective) => format!(
            "p{} < {}",
            round_to_digits(objective.quantile * 100.0, 5),
            format_value(InputKind::Time, objective.limit_s)
        ),
        InputValue::Backends(backends) => record::units::format_plural(backends.len() as u64, "backend"),
        InputValue::Scaling(points) => record::units::format_plural(points.len() as u64, "point"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, text: &str) -> Result<Inputs, InvalidValue> {
        let mut inputs = Inputs::default();
        inputs.give_texts(name, &[text.to_owned()], "test").map(|()| inputs)
    }

    #[test]
    fn every_row_accepts_its_valid_and_rejects_its_invalid_values() {
        for row in INPUTS {
            for text in row.valid.iter().chain((!row.default.is_empty()).then_some(&row.default)) {
                assert!(given(row.name, text).is_ok(), "{} {text}: {:?}", row.name, given(row.name, text));
            }
            for text in row.invalid {
                assert!(given(row.name, text).is_err(), "{} {text}", row.name);
            }
        }
    }

    #[test]
    fn the_first_value_wins_and_defaults_have_a_source() {
        let mut inputs = given("rate", "4k").unwrap();
        inputs.give_number("rate", 1.0, "run.json");
        assert_eq!((inputs.number("rate"), inputs.number("service")), (Some(4000.0), None));
        assert!(inputs.get("stall").unwrap().source.starts_with("default: "));
        assert_eq!(inputs.number("stall"), Some(5.0));
        assert_eq!(given("link", "10G").unwrap().number("link"), Some(1e10));
        let objective = given("slo", "p99.9<50ms").unwrap().objective().unwrap();
        assert!((objective.quantile - 0.999).abs() < 1e-12 && objective.limit_s == 0.05, "{objective:?}");
    }

    #[test]
    fn problems_of_the_inputs_together_are_reported_at_once() {
        let mut inputs = given("servers", "2").unwrap();
        inputs.give_texts("backend", &["a=1x1".to_owned(), "a=2x2".to_owned()], "test").unwrap();
        let locations: Vec<_> = inputs.problems().into_iter().map(|problem| problem.location).collect();
        assert_eq!(locations, ["--rate", "--servers", "--backend"]);
    }
}

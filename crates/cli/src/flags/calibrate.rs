//! The flags of `weir calibrate`: the profile of the load, and the number of trials.

use load::plan::{LoadFlags, TlsFlags, XdpFlags};
use runner::embedded::CLIENT_INTERFACE;

use super::http::{HTTP, STREAMS, http_flags};
use super::load::{
    CONNECTIONS, DATA, HEADER, JSON, METHOD, PIN, REQUESTS_PER_CONNECTION, TIMEOUT, request_body,
};
use super::tls::{TLS_CIPHERS, TLS_GROUPS, TLS_MAX, TLS_MIN, TLS_NEW, TLS_RESUME, tls_flags};
use super::{CommandArgs, CommandInfo, flag, switch};

pub(crate) const CALIBRATE: CommandInfo = CommandInfo {
    name: "calibrate",
    about: "Measure the maximum load that this machine can generate",
    doc: "Starts an origin and drives it at full speed, alternating between one thread and all \
          threads, in several trials. Reports the capacity of one core and of all cores, with the \
          spread. Stores the result for this host, so that `weir load` can compare its runs with \
          it.",
    values: None,
    flags: &[
        CONNECTIONS,
        flag("size", "SIZE").default("100").values(&["0", "10k"], &["x"]).doc("Size of the response bodies"),
        REQUESTS_PER_CONNECTION,
        METHOD,
        HEADER,
        DATA,
        TIMEOUT,
        PIN,
        switch("tls").doc(
            "Calibrate with TLS, for later loads of https URLs: a calibration without TLS says \
             nothing about them",
        ),
        switch("xdp").doc(
            "Calibrate TCP in user space over AF_XDP, for later loads with --xdp: over a virtual link in network \
             namespaces of its own, whose packets are copied. Needs root",
        ),
        TLS_MIN,
        TLS_MAX,
        TLS_RESUME,
        TLS_NEW,
        HTTP,
        STREAMS,
        TLS_CIPHERS,
        TLS_GROUPS,
        flag("trials", "N").default("5").values(&["3"], &["0", "1000", "x"]).doc("Trials per thread count"),
        flag("trial-time", "TIME")
            .default("2s")
            .values(&["1"], &["0", "10ms", "x"])
            .doc("Duration of a trial, 1 s or more; default unit: s"),
        flag("target", "RATE")
            .values(&["2M"], &["x", "0"])
            .doc("Target rate; prints the number of such machines that it needs"),
        JSON,
    ],
    examples: &[(
        "weir calibrate -c 50 --trials 1 --trial-time 1s --target 2M",
        "number of such machines for two million requests per second",
    )],
};

/// Returns the texts of the calibrated load's flags, for requests to `url`.
pub(crate) fn calibrate_flags(args: CommandArgs<'_>, url: String) -> LoadFlags {
    let mut problems = Vec::new();
    let (data, data_file) = request_body(args, &mut problems);
    LoadFlags {
        urls: vec![url],
        connections: args.text("connections"),
        requests_per_connection: args.text("requests-per-connection"),
        method: args.text("method"),
        headers: args.texts("header"),
        data,
        data_file,
        problems,
        timeout: args.text("timeout"),
        pin: args.text("pin"),
        // The certificate of the embedded origin is self-signed.
        tls: TlsFlags { insecure: args.is_set("tls"), ..tls_flags(args) },
        http: http_flags(args),
        threads: Some("1".to_owned()),
        xdp: XdpFlags { interface: args.is_set("xdp").then(|| CLIENT_INTERFACE.to_owned()), exposed: false },
        ..LoadFlags::default()
    }
}

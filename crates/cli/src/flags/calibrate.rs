//! The flags of `weir calibrate`: the profile of the load, and how often to try.

use load::plan::PlanText;

use super::load::{CONNECTIONS, DATA, HEADER, JSON, METHOD, PIN, REQUESTS_PER_CONNECTION, TIMEOUT};
use super::{CommandRow, FLAG, Flag, Typed};

pub(crate) const CALIBRATE: CommandRow = CommandRow {
    name: "calibrate",
    about: "Find the most that this machine can drive, for one profile of load",
    doc: "Drives an origin of its own as fast as it goes, with one thread and with all, in turn and \
          several times; says what a core can do and what all can do, with the spread; and keeps it \
          for this host, so that later runs of weir load are held against it.",
    values: None,
    flags: &[
        CONNECTIONS,
        Flag {
            long: "size",
            value: "SIZE",
            default: "100",
            doc: "Size of the response bodies",
            right: &["0", "10k"],
            wrong: &["x"],
            ..FLAG
        },
        REQUESTS_PER_CONNECTION,
        METHOD,
        HEADER,
        DATA,
        TIMEOUT,
        PIN,
        Flag {
            long: "trials",
            value: "N",
            default: "5",
            doc: "Trials of each kind",
            right: &["3"],
            wrong: &["0", "1000", "x"],
            ..FLAG
        },
        Flag {
            long: "trial-time",
            value: "TIME",
            default: "2s",
            doc: "Length of a trial, 1s at the least; bare: s",
            right: &["1"],
            wrong: &["0", "10ms", "x"],
            ..FLAG
        },
        Flag {
            long: "target",
            value: "RATE",
            doc: "Say how many machines like this one a target rate needs",
            right: &["2M"],
            wrong: &["x", "0"],
            ..FLAG
        },
        JSON,
    ],
    examples: &[(
        "weir calibrate -c 50 --trials 1 --trial-time 1s --target 2M",
        "how many machines like this one drive two million requests per second",
    )],
};

/// The texts of the calibrated load's flags, for requests to `url`.
pub(crate) fn calibrate_text(typed: Typed<'_>, url: String) -> PlanText {
    PlanText {
        urls: vec![url],
        connections: typed.text("connections"),
        requests_per_connection: typed.text("requests-per-connection"),
        method: typed.text("method"),
        headers: typed.texts("header"),
        data: typed.text("data"),
        timeout: typed.text("timeout"),
        pin: typed.text("pin"),
        threads: Some("1".to_owned()),
        ..PlanText::default()
    }
}

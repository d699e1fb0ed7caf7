//! Line of a log for any value, for fuzz targets and tests.

use server_shell::date::WallClock;

use super::super::line::{LINE_BYTES_MAX, LoadCounts, SecondCache};
use super::super::names::LogNames;
use super::super::sink::render_to_vec;
use super::{append_captured, captured_values, is_captured, push_line};
use crate::outcome::{EndPhase, EndReason, LoggedRequest, Outcome, Protocol, Times};
use crate::plan::LogTemplate;

/// Returns the line of a request all of whose texts are `value`.
pub(crate) fn line_of_values(format: &LogTemplate, value: &[u8]) -> Vec<u8> {
    let mut captured = Vec::new();
    for (variable, name) in captured_values(format) {
        append_captured(&name, |out| out.extend_from_slice(value), &mut captured);
        debug_assert!(is_captured(&variable));
    }
    let request = LoggedRequest {
        method: value,
        target: value,
        protocol: Protocol::Http11,
        host: value,
        referer: value,
        user_agent: value,
        request_id: value,
        captured: &captured,
    };
    let outcome = Outcome {
        client: None,
        client_port: 0,
        listener: 0,
        route: None,
        pool: None,
        server: None,
        request: Some(request),
        status: 200,
        end: EndReason::Done,
        phase: EndPhase::Over,
        refusal: None,
        times: Times::default(),
        bytes_in: 0,
        bytes_out: 0,
        content_bytes_out: 0,
        retries: 0,
        reused: false,
        wasted: false,
        sticky: None,
        hedge: None,
        cache: None,
        tls_names: None,
        server_name: None,
        tls_error: None,
        user: "",
        trace: None,
    };
    let names = LogNames::none();
    let (mut seconds, load) = (SecondCache::default(), LoadCounts::default());
    let entry = seconds.entry(&outcome, &names, &load, WallClock::ahead_by(0));
    render_to_vec(LINE_BYTES_MAX, |out| push_line(out, format, &entry))
}

//! Properties of decoders that hold for any bytes, for tests and fuzz targets only. Nothing in a product
//! calls them.

use crate::plan::{HarHosts, RenderedRequest, ReplayLog, Url};

/// Checks a log: its problems have positions and are printable, and its requests are due in order. `true`: it
/// was a log.
///
/// # Panics
/// One of the properties does not hold.
pub fn replay_log(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let log = match ReplayLog::parse("a.log", &text, false) {
        Ok(log) => log,
        Err(problems) => {
            for problem in &problems {
                let text = problem.to_string();
                assert!(text.starts_with("a.log") && !text.contains(char::is_control), "{text:?}");
            }
            assert!((1..=10).contains(&problems.len()), "{} problems", problems.len());
            return false;
        }
    };
    let Ok(url) = Url::parse("http://a/") else { return false };
    let template = RenderedRequest::new(url, "GET", &[], b"");
    if let Ok((requests, schedule)) = log.schedule(&template, 1.0, &HarHosts::All) {
        assert!(!requests.is_empty() && requests.len() <= schedule.len() && schedule.len() == log.len());
        let due_ns: Vec<u64> = (0..schedule.len()).filter_map(|index| schedule.due_ns(index)).collect();
        assert!(due_ns.is_sorted(), "{due_ns:?}");
    }
    true
}

#[cfg(test)]
mod cost_tests;

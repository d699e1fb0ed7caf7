//! Converts the limits of bytes per second of a listener and of a route.

use std::sync::Arc;

use record::document::Problems;

use crate::plan::{BandwidthPlan, SharedBandwidth};

use super::value::Section;

/// The limits as they were given. Those that were not are inherited.
pub(super) struct GivenBandwidth {
    download: Option<u64>,
    after_bytes: Option<u64>,
    /// One for all listeners and pools of its owner.
    total: Option<Arc<SharedBandwidth>>,
    upload: Option<u64>,
}

/// Keys of the limits.
pub(super) const BANDWIDTH_KEYS: [&str; 4] =
    ["limit-rate", "limit-rate-after", "limit-rate-total", "limit-rate-upload"];

/// Reads the keys of a listener or a route; `None`: none was given.
pub(super) fn parse_bandwidth(section: &Section) -> Option<GivenBandwidth> {
    BANDWIDTH_KEYS.iter().any(|key| section.key_offset(key).is_some()).then(|| GivenBandwidth {
        download: section.integer("limit-rate"),
        after_bytes: section.integer("limit-rate-after"),
        total: section.integer("limit-rate-total").map(|rate| Arc::new(SharedBandwidth::new(rate))),
        upload: section.integer("limit-rate-upload"),
    })
}

impl GivenBandwidth {
    /// Returns the limits, with those that were not given from `inherited`; `None`: there are none.
    pub(super) fn over(&self, inherited: Option<&BandwidthPlan>) -> Option<Arc<BandwidthPlan>> {
        let mut plan = inherited.cloned().unwrap_or_default();
        plan.download = self.download.or(plan.download);
        plan.after_bytes = self.after_bytes.unwrap_or(plan.after_bytes);
        plan.total = self.total.clone().or(plan.total);
        plan.upload = self.upload.or(plan.upload);
        let has_limit = plan.download.is_some() || plan.total.is_some() || plan.upload.is_some();
        has_limit.then(|| Arc::new(plan))
    }
}

/// Warns about `limit-rate-after` without a rate.
pub(super) fn warn_of_after(section: &Section, plan: Option<&BandwidthPlan>, problems: &mut Problems) {
    let has_rate = plan.is_some_and(|plan| plan.download.is_some());
    if let Some(offset) = section.key_offset("limit-rate-after").filter(|_| !has_rate) {
        problems.warn(offset, "'limit-rate-after' has no effect without limit-rate");
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    fn limits(listener: &str, route: &str) -> Result<String, Vec<String>> {
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\n{listener}\n[[route]]\n{route}\n\
             [pool.app]\nservers = ['127.0.0.1:9001']\n"
        );
        match parse("t", &text) {
            Ok(parsed) if parsed.warnings.is_empty() => {
                let settings = parsed.plan.routes[0].settings.for_listener(0);
                let plan = settings.and_then(|settings| settings.bandwidth.as_ref());
                Ok(plan.map_or_else(|| "none".to_owned(), ToString::to_string))
            }
            Ok(parsed) => Err(parsed.warnings.iter().map(ToString::to_string).collect()),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_route_inherits_each_limit_of_its_listener() {
        let pool = |keys: &str| format!("pool = 'app'\n{keys}");
        for (listener, route, expected) in [
            ("", "", "none"),
            (
                "",
                "limit-rate = '1MiB/s'\nlimit-rate-after = '10m'",
                "1048576 B/s of each response after 10485760 B",
            ),
            ("limit-rate = '64k/s'", "", "65536 B/s of each response after 0 B"),
            (
                "limit-rate = '64k/s'\nlimit-rate-upload = 2000",
                "limit-rate-total = '1.5m'",
                "65536 B/s of each response after 0 B, 1572864 B/s of all responses, 2000 B/s of each request",
            ),
        ] {
            assert_eq!(limits(listener, &pool(route)).as_deref(), Ok(expected), "{listener} {route}");
        }
        assert_eq!(
            limits("", "host = 'a'\nfiles = { root = '/tmp' }\nlimit-rate = '1k/s'\n[[route]]\npool = 'app'")
                .as_deref(),
            Ok("1024 B/s of each response after 0 B")
        );
    }

    #[test]
    fn wrong_and_useless_limits_have_a_place() {
        for (route, part) in [
            ("pool = 'app'\nlimit-rate = '1x/s'", "t:6:14: 'limit-rate'"),
            ("pool = 'app'\nlimit-rate = 100", "1024"),
            ("pool = 'app'\nlimit-rate-after = '1m'", "no effect without limit-rate"),
            (
                "host = 'a'\ndeny = true\nlimit-rate = '1m/s'\n[[route]]\npool = 'app'",
                "'limit-rate' has no effect with deny",
            ),
            (
                "host = 'a'\nfiles = { root = '/tmp' }\nlimit-rate-upload = '1m/s'\n[[route]]\npool = 'app'",
                "no effect with files",
            ),
        ] {
            let problems = limits("", route).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(part), "{route}: {problems:?}");
        }
    }
}

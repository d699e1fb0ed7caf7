//! Converts `compression` of a listener and of a route.

use std::sync::Arc;

use content::codings::Coding;
use content::compress::levels_of;
use content::plan::{COMPRESS_BYTES_MIN, COMPRESS_MEMORY_BYTES};
use record::document::Problems;

use crate::plan::CompressionPlan;

use super::value::Section;

/// `compression` as it was given. What was not given is inherited.
pub(super) enum GivenCompression {
    Off,
    On(GivenKeys),
}

#[derive(Default)]
pub(super) struct GivenKeys {
    codings: Option<Vec<Coding>>,
    levels: [Option<u8>; Coding::ALL.len()],
    types: Option<Vec<Box<str>>>,
    bytes_min: Option<u64>,
    encoder_bytes_max: Option<u64>,
    with_credentials: Option<bool>,
    decodes: Option<bool>,
}

/// Reads the key of a listener or a route; `None`: it was not given.
pub(super) fn parse_compression(owner: &Section, problems: &mut Problems) -> Option<GivenCompression> {
    owner.key_offset("compression")?;
    if owner.is_switched_off("compression") {
        return Some(GivenCompression::Off);
    }
    let section = owner.table("compression");
    let is_given = |key: &str| section.key_offset(key).is_some();
    let codings = is_given("codings").then(|| parse_codings(&section, problems));
    let levels = parse_levels(&section, codings.as_deref(), problems);
    Some(GivenCompression::On(GivenKeys {
        levels,
        codings,
        types: is_given("types").then(|| parse_types(&section, problems)),
        bytes_min: section.integer("min-size").filter(|_| is_given("min-size")),
        encoder_bytes_max: section.integer("encoders-max").filter(|_| is_given("encoders-max")),
        with_credentials: is_given("with-credentials").then(|| section.flag("with-credentials")),
        decodes: is_given("decode").then(|| section.flag("decode")),
    }))
}

fn parse_codings(section: &Section, problems: &mut Problems) -> Vec<Coding> {
    let mut codings = Vec::new();
    for text in section.texts("codings") {
        match Coding::ALL.into_iter().find(|coding| coding.name() == &*text.value) {
            Some(coding) if codings.contains(&coding) => {
                problems.add_error(text.offset, format!("'{}' is a duplicate: remove it", text.value));
            }
            Some(coding) => codings.push(coding),
            None => {
                problems.add_error(text.offset, format!("'{}' is not br, zstd or gzip", text.value));
            }
        }
    }
    codings
}

fn parse_levels(
    section: &Section,
    codings: Option<&[Coding]>,
    problems: &mut Problems,
) -> [Option<u8>; Coding::ALL.len()] {
    let levels = section.table("level");
    Coding::ALL.map(|coding| {
        let offset = levels.key_offset(coding.name())?;
        if codings.is_some_and(|codings| !codings.contains(&coding)) {
            let text = format!("'{}' has no effect: it is none of the `codings`", coding.name());
            problems.warn(offset, text);
        }
        levels.integer(coding.name()).and_then(|level| u8::try_from(level).ok())
    })
}

fn parse_types(section: &Section, problems: &mut Problems) -> Vec<Box<str>> {
    let mut types = Vec::new();
    for text in section.texts("types") {
        let lower = text.value.to_ascii_lowercase();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        match lower.split_once('/') {
            Some((kind, subtype)) if is_name(kind) && (subtype == "*" || is_name(subtype)) => {
                types.push(lower.into());
            }
            _ => {
                let why = format!("'{}' is no media type: write text/html, or text/*", text.value);
                problems.add_error(text.offset, why);
            }
        }
    }
    types
}

impl GivenCompression {
    /// Returns the settings, with those that were not given from `inherited`, or else the defaults.
    pub(super) fn over(&self, inherited: Option<&CompressionPlan>) -> Option<Arc<CompressionPlan>> {
        let Self::On(keys) = self else { return None };
        let mut plan = inherited.cloned().unwrap_or_else(|| CompressionPlan {
            codings: Coding::ALL.to_vec(),
            levels: Coding::ALL.map(|coding| levels_of(coding).0),
            types: None,
            bytes_min: COMPRESS_BYTES_MIN,
            encoder_bytes_max: COMPRESS_MEMORY_BYTES,
            with_credentials: false,
            decodes: false,
        });
        plan.codings = keys.codings.clone().unwrap_or(plan.codings);
        plan.types = keys.types.clone().or(plan.types);
        plan.bytes_min = keys.bytes_min.unwrap_or(plan.bytes_min);
        plan.encoder_bytes_max = keys.encoder_bytes_max.unwrap_or(plan.encoder_bytes_max);
        plan.with_credentials = keys.with_credentials.unwrap_or(plan.with_credentials);
        plan.decodes = keys.decodes.unwrap_or(plan.decodes);
        for coding in Coding::ALL {
            let level = &mut plan.levels[coding.index()];
            *level = keys.levels[coding.index()].unwrap_or(*level);
        }
        Some(Arc::new(plan))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    const REST: &str = "[pool.app]\nservers = ['127.0.0.1:9001']\n";

    /// Returns the settings of the route as `--explain` prints them; an error: all problems and warnings.
    fn settings(listener: &str, route: &str) -> Result<String, Vec<String>> {
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\n{listener}\n[[route]]\npool = 'app'\n{route}\n{REST}"
        );
        match parse("t", &text) {
            Ok(parsed) if parsed.warnings.is_empty() => {
                let settings = parsed.plan.routes[0].settings.for_listener(0);
                let plan = settings.and_then(|settings| settings.compression.as_ref());
                Ok(plan.map_or_else(|| "none".to_owned(), ToString::to_string))
            }
            Ok(parsed) => Err(parsed.warnings.iter().map(ToString::to_string).collect()),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_route_inherits_each_key_of_its_listener() {
        let defaults = "br level 4, zstd level 3, gzip level 6, from 1024 B, encoders 33554432 B";
        let listener = "compression = { codings = 'gzip', level = { gzip = 1 }, min-size = 0 }";
        let listener_settings = "gzip level 1, from 0 B, encoders 33554432 B";
        for (listener, route, expected) in [
            ("", "", "none"),
            ("", "compression = true", defaults),
            ("compression = true", "", defaults),
            ("compression = true", "compression = false", "none"),
            (listener, "", listener_settings),
            (listener, "compression = true", listener_settings),
            (listener, "compression = { min-size = '2k' }", "gzip level 1, from 2048 B, encoders 33554432 B"),
            (
                listener,
                "compression = { codings = ['zstd', 'gzip'], types = ['text/*', 'A/B'], decode = true }",
                "zstd level 3, gzip level 1, from 0 B, encoders 33554432 B, text/* a/b, decodes",
            ),
        ] {
            assert_eq!(settings(listener, route).as_deref(), Ok(expected), "{listener} {route}");
        }
    }

    #[test]
    fn wrong_and_useless_values_have_a_place() {
        for (route, part) in [
            ("compression = { codings = ['gzip', 'deflate'] }", "t:6:36: 'deflate' is not br, zstd or gzip"),
            ("compression = { codings = ['gzip', 'gzip'] }", "duplicate"),
            ("compression = { types = 'text' }", "'text' is no media type"),
            ("compression = { types = '*/*' }", "'*/*' is no media type"),
            ("compression = { level = { gzip = 10 } }", "gzip"),
            ("compression = { codings = 'gzip', level = { br = 1 } }", "'br' has no effect"),
        ] {
            let problems = settings("", route).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(part), "{route}: {problems:?}");
        }
        let tcp = "mode = 'tcp'\npool = 'app'\ncompression = true";
        let text = format!("[listener.web]\nbind = '127.0.0.1:0'\n{tcp}\n{REST}");
        let messages = parse("t", &text).map_or_else(|problems| problems, |parsed| parsed.warnings);
        assert!(messages.iter().any(|message| message.to_string().contains("'compression'")), "{messages:?}");
    }
}

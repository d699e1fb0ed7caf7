//! Proxy of a verification, and the values of the placeholders in its command and its config. No I/O.

use plan::config::{ConfigTarget, write_verified};
use plan::subject_queue::SubjectQueue;
use plan::verification::VerifiedPlan;

/// Lines at the start of the `http` block of a generated config of nginx.
const NGINX_HTTP: &str = "http {\n    access_log off;\n    client_body_temp_path client;\n    \
                          proxy_temp_path proxy;\n";
pub const PLACEHOLDERS: [&str; 10] = [
    "listen",
    "port",
    "origin",
    "origins",
    "maxconn",
    "queue-limit",
    "queue-ms",
    "connections",
    "dir",
    "config",
];
/// Proxy of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerifySubject {
    #[default]
    Weir,
    /// HAProxy, with its queue limited by a rule and by time.
    Haproxy,
    /// Program that weir starts, whose queue it cannot read.
    Program(SubjectProgram, SubjectQueue),
    /// Proxy that runs already.
    Running(RunningSubject, SubjectQueue),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectProgram {
    pub command: Vec<String>,
    pub config: Option<ConfigSource>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    Generated(ConfigTarget),
    Template(String),
}

/// Proxy that runs already, and the addresses of its origins, at which weir listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningSubject {
    /// Its URL, without a path.
    pub url: String,
    pub origins: Vec<String>,
}

pub(super) struct SubjectValues<'a> {
    pub(super) plan: &'a VerifiedPlan,
    pub(super) port: u16,
    pub(super) origins: &'a [String],
    pub(super) connections: u64,
    pub(super) directory: &'a str,
    pub(super) config: &'a str,
}

impl VerifySubject {
    pub fn queue(&self) -> SubjectQueue {
        match self {
            Self::Weir | Self::Haproxy => SubjectQueue::Bounded,
            Self::Program(_, queue) | Self::Running(_, queue) => *queue,
        }
    }
}

impl SubjectValues<'_> {
    /// Fills in a word or a line. `server` is the number of the origin that `{origin}` means, from 0.
    fn fill(&self, text: &str, server: usize) -> String {
        let mut filled = text.to_owned();
        for name in PLACEHOLDERS {
            let value = || match name {
                "listen" => format!("127.0.0.1:{}", self.port),
                "port" => self.port.to_string(),
                "origin" => self.origins.get(server).cloned().unwrap_or_default(),
                "origins" => self.origins.join(","),
                "maxconn" => self.plan.maxconn.to_string(),
                "queue-limit" => self.plan.queue_limit.to_string(),
                "queue-ms" => self.plan.queue_ms().to_string(),
                "connections" => self.connections.to_string(),
                "dir" => self.directory.to_owned(),
                _ => self.config.to_owned(),
            };
            let placeholder = format!("{{{name}}}");
            if filled.contains(&placeholder) {
                filled = filled.replace(&placeholder, &value());
            }
        }
        filled
    }

    pub(super) fn command(&self, program: &SubjectProgram) -> Vec<String> {
        program.command.iter().map(|word| self.fill(word, 0)).collect()
    }

    /// Returns the text of the config. A line of a template with `{origin}` is repeated for each origin.
    pub(super) fn config_text(&self, source: &ConfigSource) -> String {
        match source {
            ConfigSource::Template(text) => {
                let repeated = |line: &str| if line.contains("{origin}") { self.origins.len() } else { 1 };
                let lines = text.lines().flat_map(|line| (0..repeated(line)).map(move |at| (line, at)));
                lines.map(|(line, at)| self.fill(line, at) + "\n").collect()
            }
            ConfigSource::Generated(target) => {
                let listen = format!("127.0.0.1:{}", self.port);
                let text = write_verified(self.plan, *target, (self.connections, &listen), self.origins);
                match target {
                    ConfigTarget::Nginx => text.replacen("http {\n", NGINX_HTTP, 1),
                    _ => text,
                }
            }
        }
    }
}

/// Reports unknown placeholders, and a command without its address or its config.
pub fn check_placeholders(
    command: &[String],
    config: Option<&ConfigSource>,
    is_config_given: bool,
    note: &mut impl FnMut(&str, String),
) {
    for name in command.iter().flat_map(|word| placeholders(word)) {
        if !PLACEHOLDERS.contains(&name) {
            note("subject", format!("'{{{name}}}' is no placeholder: {}", PLACEHOLDERS.join(", ")));
        }
    }
    let has = |text: &str, name: &str| placeholders(text).any(|placeholder| placeholder == name);
    let has_word = |name: &str| command.iter().any(|word| has(word, name));
    match (is_config_given, has_word("config")) {
        (false, true) => note("subject-config", "missing: the command has {config}".to_owned()),
        (true, false) => note("subject", "{config} is missing: the path of the generated file".to_owned()),
        _ => {}
    }
    let listens = match config {
        Some(ConfigSource::Generated(_)) => true,
        Some(ConfigSource::Template(text)) => has(text, "listen") || has(text, "port"),
        None => false,
    };
    if !listens && !has_word("listen") && !has_word("port") && (config.is_some() || !is_config_given) {
        let text = "the program does not get its address: {listen} or {port} is missing in the command and its config";
        note("subject", text.to_owned());
    }
}

/// Returns the names in braces: lower-case letters and `-`.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once('}')?;
        let fits = |character: char| character.is_ascii_lowercase() || character == '-';
        (!name.is_empty() && name.chars().all(fits)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use plan::inputs::Inputs;
    use plan::sizing::Sizing;

    use super::*;

    #[test]
    fn a_template_repeats_the_lines_of_the_origins() {
        let mut inputs = Inputs::default();
        for (name, text) in [("rate", "100"), ("service", "10ms"), ("servers", "2"), ("maxconn", "3")] {
            inputs.give_texts(name, &[text.to_owned()], "test").unwrap();
        }
        let plan = VerifiedPlan::new(&Sizing::compute(&inputs), &inputs).unwrap();
        let origins = ["a:1".to_owned(), "b:2".to_owned()];
        let values = SubjectValues {
            plan: &plan,
            port: 80,
            origins: &origins,
            connections: 9,
            directory: "/d",
            config: "/d/c",
        };
        let template =
            ConfigSource::Template("on {listen}\n  to {origin} max {maxconn};\n{ ${x} }".to_owned());
        let text = values.config_text(&template);
        assert_eq!(text, "on 127.0.0.1:80\n  to a:1 max 3;\n  to b:2 max 3;\n{ ${x} }\n");
        let program = SubjectProgram {
            command: ["x", "{origins} {dir}", "{config}"].map(str::to_owned).to_vec(),
            config: None,
        };
        assert_eq!(values.command(&program), ["x", "a:1,b:2 /d", "/d/c"]);
        let nginx = values.config_text(&ConfigSource::Generated(ConfigTarget::Nginx));
        for part in ["listen 127.0.0.1:80;", "server b:2 max_conns=3;", "access_log off;"] {
            assert!(nginx.contains(part), "{part}: {nginx}");
        }
    }
}

//! The flags of `weir proxy import`.

use import::Program;
use record::invalid_value;
use record::problem::InvalidValue;

use super::{CommandFlags, CommandInfo, command_flags, flag};

pub(crate) const IMPORT: CommandInfo = CommandInfo {
    name: "proxy import",
    about: "Translate a config of HAProxy, nginx or Caddy",
    doc: "Prints a config of weir proxy, with the lines of the source as comments. Directives without an \
          equivalent are listed on stderr, with file, line and reason; exit code 3 means that something is left to do. \
          The config is valid in any case. A fragment is enough: a server {}, a backend, a site. docs/import.md lists \
          all directives, and what differs.",
    values: Some(("FILE", "Config file, such as haproxy.cfg, nginx.conf or Caddyfile; -: stdin")),
    flags: ImportFlags::FLAGS,
    examples: &[
        ("weir proxy import nginx.conf", "print the translation"),
        ("weir proxy import --from caddy --output imported.toml Caddyfile", "write it to a file"),
    ],
};

command_flags! {
    pub(crate) struct ImportFlags {
        program: Option<Program> = flag("from", "haproxy|nginx|caddy")
            .default("recognised by the content")
            .values(&["nginx"], &["apache"])
            .doc("Program of the config")
            .parsed(parse_program),
        output: Option<String> = flag("output", "FILE")
            .short('o')
            .default("stdout")
            .values(&["weir.toml"], &[])
            .doc("Write the config to a file, completely or not at all")
            .text(),
    }
}

fn parse_program(name: &str) -> Result<Program, InvalidValue> {
    Program::parse(name).ok_or_else(|| invalid_value!("'{name}': write haproxy, nginx or caddy"))
}

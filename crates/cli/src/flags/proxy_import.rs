//! The flags of `weir proxy import`.

use super::{CommandInfo, FLAG_DEFAULTS, Flag};

pub(crate) const IMPORT: CommandInfo = CommandInfo {
    name: "proxy import",
    about: "Translate a config of HAProxy, nginx or Caddy",
    doc: "Prints a config of weir proxy, with the lines of the source as comments. Directives without an \
          equivalent are listed on stderr, with file, line and reason; exit code 3 means that something is left to do. \
          The config is valid in any case. A fragment is enough: a server {}, a backend, a site. docs/import.md lists \
          all directives, and what differs.",
    values: Some(("FILE", "Config file, such as haproxy.cfg, nginx.conf or Caddyfile; -: stdin")),
    flags: &[
        Flag {
            long: "from",
            value: "haproxy|nginx|caddy",
            default: "recognised by the content",
            doc: "Program of the config",
            valid: &["nginx"],
            invalid: &["apache"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "output",
            short: Some('o'),
            value: "FILE",
            default: "stdout",
            doc: "Write the config to a file, completely or not at all",
            valid: &["weir.toml"],
            ..FLAG_DEFAULTS
        },
    ],
    examples: &[
        ("weir proxy import nginx.conf", "print the translation"),
        ("weir proxy import --from caddy --output imported.toml Caddyfile", "write it to a file"),
    ],
};

//! The flags of `weir ctl`.

use super::{CommandRow, FLAG, Flag};

/// Where a proxy's control socket is, if nothing else is said.
pub(crate) const SOCKET_DEFAULT: &str = "/run/weir.sock";

pub(crate) const CTL: CommandRow = CommandRow {
    name: "ctl",
    about: "Operate a running weir proxy: look at it, drain servers, end connections, reload",
    doc: "The proxy listens on the unix socket that `control` in its config, or its flag --control, \
          names; only root and the proxy's own user may. What is set while running (ready, drain, \
          maint, weight, maxconn) holds over reloads, until the server goes or the process ends. \
          The exit code is 2 when what was asked is wrong, as a config that cannot be applied, and \
          1 when nobody answers.",
    values: Some(("COMMAND", "What to do, with its words; see below")),
    flags: &[
        Flag {
            long: "socket",
            short: Some('s'),
            value: "PATH",
            default: SOCKET_DEFAULT,
            doc: "The proxy's control socket",
            right: &["/run/weir.sock"],
            ..FLAG
        },
        Flag {
            long: "json",
            doc: "With show, top and profile: JSON with units in the names, for programs",
            ..FLAG
        },
        Flag {
            long: "once",
            doc: "With top: one second, as it is without a terminal, instead of one after the other",
            ..FLAG
        },
    ],
    examples: &[
        ("weir ctl --socket ctl.sock show", "all at a glance"),
        ("weir ctl --socket ctl.sock show servers --json", "servers, for a program"),
        ("weir ctl --socket ctl.sock show connections", "who is connected, and where to"),
        ("weir ctl --socket ctl.sock show config", "the config that is in force"),
        ("weir ctl --socket ctl.sock server app/a drain", "send no new requests to a server"),
        ("weir ctl --socket ctl.sock server app/a weight 10", "give it another share"),
        ("weir ctl --socket ctl.sock server app/a maxconn 50", "bound it"),
        ("weir ctl --socket ctl.sock server app/a ready", "send requests to it again"),
        ("weir ctl --socket ctl.sock kill server app/a", "end what it is at"),
        ("weir ctl --socket ctl.sock reload", "apply the changed config"),
        ("weir ctl --socket ctl.sock reopen", "open the logs anew after logrotate"),
        ("weir ctl --socket ctl.sock profile on", "measure where processor time goes"),
        ("weir ctl --socket ctl.sock top --once", "the rates of one second"),
        ("weir ctl --socket ctl.sock profile on exact", "on a machine that others use too"),
        ("weir ctl --socket ctl.sock profile show", "where it went"),
        ("weir ctl --socket ctl.sock profile off", "and no more"),
        ("weir ctl help", "all commands"),
        ("weir ctl --socket ctl.sock drain", "stop it without losing a request"),
    ],
};

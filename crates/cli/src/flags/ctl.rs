//! The flags of `weir ctl`.

use super::{CommandFlags, CommandInfo, command_flags, flag, switch};

/// Default path of a proxy's control socket.
pub(crate) const SOCKET_DEFAULT: &str = "/run/weir.sock";

pub(crate) const CTL: CommandInfo = CommandInfo {
    name: "ctl",
    about: "Operate a running proxy: inspect, drain, reload",
    doc: "Connects to the proxy's control socket: the unix socket of `control` in its config, or \
          of its flag --control. Only root and the proxy's own user may use it. Changes at \
          runtime (ready, drain, maint and its page, weight, maxconn, added servers, percentages, splits) survive \
          reloads. They end when the server is removed from the config, or with the process if \
          the config has no `state-file`. Exit code 2: the command or the config is invalid. \
          Exit code 1: the proxy does not respond.",
    values: Some(("COMMAND", "Command and its arguments, see below")),
    flags: CtlFlags::FLAGS,
    examples: &[
        ("weir ctl --socket ctl.sock show", "overview"),
        ("weir ctl --socket ctl.sock show servers --json", "servers as JSON"),
        ("weir ctl --socket ctl.sock show connections", "clients and their servers"),
        ("weir ctl --socket ctl.sock show config", "the active config"),
        ("weir ctl --socket ctl.sock server app/a drain", "send no new requests to a server"),
        ("weir ctl --socket ctl.sock server app/a weight 10", "change its weight"),
        ("weir ctl --socket ctl.sock server app/a maxconn 50", "limit its connections"),
        ("weir ctl --socket ctl.sock server app/a ready", "send requests to it again"),
        ("weir ctl --socket ctl.sock server app/c add 127.0.0.1:9", "add a server"),
        ("weir ctl --socket ctl.sock server app/c remove", "remove it"),
        ("weir ctl --socket ctl.sock pool app drain", "the same for all servers of a pool"),
        ("weir ctl --socket ctl.sock pool app ready", "send requests to them again"),
        ("weir ctl --socket ctl.sock maintenance on", "send no request to any server"),
        (
            "weir ctl --socket ctl.sock maintenance on --body page.html",
            "the same, with this page for its clients",
        ),
        ("weir ctl --socket ctl.sock maintenance", "the state of that, and its page"),
        ("weir ctl --socket ctl.sock maintenance off", "end that"),
        ("weir ctl --socket ctl.sock map list", "maps and lists of the config"),
        ("weir ctl --socket ctl.sock cache", "caches of responses"),
        ("weir ctl --socket ctl.sock percent", "percentages that can be changed"),
        ("weir ctl --socket ctl.sock split", "splits between pools that can be changed"),
        ("weir ctl --socket ctl.sock kill server app/a", "close its connections"),
        ("weir ctl --socket ctl.sock reload", "apply the changed config"),
        ("weir ctl --socket ctl.sock reopen", "reopen the logs after logrotate"),
        ("weir ctl --socket ctl.sock profile on", "measure CPU time per phase"),
        ("weir ctl --socket ctl.sock top --once", "rates over one second"),
        (
            "weir ctl --socket ctl.sock profile on exact",
            "the same with the thread CPU clock, for a shared machine",
        ),
        ("weir ctl --socket ctl.sock profile show", "print the measured CPU time"),
        ("weir ctl --socket ctl.sock profile off", "stop measuring"),
        ("weir ctl help", "all commands"),
        ("weir ctl --socket ctl.sock drain", "stop without losing a request"),
    ],
};

command_flags! {
    pub(crate) struct CtlFlags {
        socket: Option<String> = flag("socket", "PATH")
            .short('s')
            .aliases(&["--control"])
            .default(SOCKET_DEFAULT)
            .values(&["/run/weir.sock"], &[])
            .doc("Control socket of the proxy")
            .text(),
        json: bool = switch("json")
            .doc(
                "Print JSON, with units in the names; for show, maintenance, map, percent, split, top and profile",
            )
            .is_given(),
        body: Option<String> = flag("body", "FILE")
            .values(&["page.html"], &[])
            .doc(
                "For `maintenance on`: file with the page of pools in maintenance, up to 64 KiB; `-` is \
                 stdin. Its media type follows its name (.html, .json, .txt), else its content",
            )
            .text(),
        values: bool = switch("values")
            .doc("With --body: replace values of the request in the page, such as {time}")
            .is_given(),
        once: bool = switch("once")
            .doc(
                "Print one sample of 1 s and exit; for top; the default if stdout is not a \
                 terminal",
            )
            .is_given(),
    }
}

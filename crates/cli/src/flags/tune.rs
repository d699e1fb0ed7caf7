//! The flags of `weir tune` and its subcommands.

use super::{CommandInfo, FLAG_DEFAULTS, Flag};

/// Directory of journals, for tests and for machines without `/run`.
const JOURNALS: Flag = Flag {
    long: "journals",
    value: "DIR",
    default: "/run/weir/tune",
    doc: "Directory of the journals of applied settings",
    valid: &["journals"],
    ..FLAG_DEFAULTS
};

pub(crate) const TUNE: CommandInfo = CommandInfo {
    name: "tune",
    about: "Check, apply, verify and revert host settings",
    doc: "A catalogue of sysctls, driver settings, limits, boot parameters and server options, each with its \
          effect, its risk and a verdict, is in the program. `weir tune check` compares this machine, or \
          somebody's sysctl.conf, with it. `weir tune apply` changes settings with a journal, so that `weir tune \
          revert`, a timeout, the end of a command or the next start after a crash restores them.",
    values: None,
    flags: &[],
    examples: &[("weir tune status", "settings that weir has changed")],
};

pub(crate) const CHECK: CommandInfo = CommandInfo {
    name: "tune check",
    about: "Check host settings, or a file with settings",
    doc: "Without --file: every setting of the catalogue on this machine, with its value, the recommended value for \
          the role and the memory, the reason, and the basis of the verdict (measured, documented, judgement). With \
          --file: every line of a sysctl.conf, a limits.conf, a tuned profile or a sysctl.d directory, with its \
          verdict for this kernel. Needs no root. What cannot be read here is reported as not observable.\n\nExit \
          code 0: nothing to change. Exit code 3: settings to change, or lines that are harmful, invalid or rejected \
          by the kernel. Conditional and obsolete lines do not count. Exit code 2: a file cannot be read.",
    values: None,
    flags: &[
        Flag {
            long: "role",
            value: "client|proxy|origin",
            default: "proxy",
            doc: "Role of this machine",
            valid: &["origin"],
            invalid: &["server"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "file",
            value: "FILE|DIR",
            repeatable: true,
            doc: "File to judge: sysctl.conf, limits.conf, a tuned profile, or a sysctl.d directory; repeatable, in \
                  the order in which they take effect",
            valid: &["sysctl.conf"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "all",
            doc: "Also list the settings that need no change, and the options of servers and boot parameters",
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the result as JSON (weir.tune-check/1); - writes it to stdout, and nothing else",
            valid: &["-"],
            ..FLAG_DEFAULTS
        },
    ],
    examples: &[
        ("weir tune check", "settings of this machine that a proxy should change"),
        ("weir tune check --role origin --all", "the complete catalogue, for an origin"),
        ("weir tune check --file sysctl.conf", "judge every line of a file"),
    ],
};

pub(crate) const APPLY: CommandInfo = CommandInfo {
    name: "tune apply",
    about: "Apply settings, with a journal to restore them",
    doc: "Values are profiles (latency, throughput, proxy, load-client, and sources-… for comparison) and settings as \
          name=value; a setting of an interface is name@eth0=value. The host is only changed with --host; --netns \
          changes one network namespace. All old values are in a journal on the disk before the first write. Every \
          value is read back; if one differs, all are restored. Settings that another apply manages are refused. \
          Settings of a profile that this kernel or this namespace does not have are skipped, with the reason. Boot \
          parameters and driver settings are reported, never set.\n\nWithout --for and without a command the \
          settings stay until `weir tune revert` or the next boot. With either, weir stays in the foreground, and \
          restores them at the end, or at Ctrl-C, SIGTERM or SIGHUP. After a crash the next `weir tune apply`, \
          `revert` or `status` restores them. With a command, its exit code is returned (128 + N after signal N).",
    values: Some(("PROFILE|NAME=VALUE", "Profiles and settings; then `-- COMMAND` to run with them")),
    flags: &[
        Flag { long: "host", doc: "Change this host", ..FLAG_DEFAULTS },
        Flag {
            long: "netns",
            value: "NAME",
            doc: "Change the network namespace NAME (ip netns), and run the command there",
            valid: &["lab"],
            ..FLAG_DEFAULTS
        },
        Flag { long: "dry-run", doc: "Print the changes and write nothing", ..FLAG_DEFAULTS },
        Flag {
            long: "for",
            value: "TIME",
            doc: "Restore the settings after this time; default unit: s",
            valid: &["10m"],
            invalid: &["soon", "0"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "persist",
            value: "FILE",
            doc: "Also write the settings to FILE for sysctl.d, with the reasons as comments",
            valid: &["/etc/sysctl.d/90-weir.conf"],
            ..FLAG_DEFAULTS
        },
        Flag {
            long: "role",
            value: "client|proxy|origin",
            default: "proxy",
            doc: "Role of this machine, for the verdicts",
            valid: &["client"],
            invalid: &["server"],
            ..FLAG_DEFAULTS
        },
        JOURNALS,
    ],
    examples: &[
        ("weir tune apply --dry-run proxy", "changes that a profile would make"),
        ("weir tune apply --dry-run net.core.somaxconn=16384", "one setting"),
    ],
};

pub(crate) const REVERT: CommandInfo = CommandInfo {
    name: "tune revert",
    about: "Restore the settings that weir has changed",
    doc: "Restores the old values of every apply, and reads them back. A setting that somebody else changed meanwhile \
          is left alone and reported, with exit code 1; --force restores it too.",
    values: None,
    flags: &[
        Flag { long: "force", doc: "Restore settings that somebody else has changed, too", ..FLAG_DEFAULTS },
        JOURNALS,
    ],
    examples: &[("weir tune revert", "restore everything")],
};

pub(crate) const STATUS: CommandInfo = CommandInfo {
    name: "tune status",
    about: "Print the settings that weir has changed",
    doc: "Lists every apply that is in force: its target, its end, and the old, the new and the present value of each \
          setting. Restores the settings of killed processes first.",
    values: None,
    flags: &[
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the result as JSON (weir.tune-status/1); - writes it to stdout, and nothing else",
            valid: &["-"],
            ..FLAG_DEFAULTS
        },
        JOURNALS,
    ],
    examples: &[("weir tune status --json -", "the same as JSON")],
};

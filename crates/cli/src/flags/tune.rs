//! The flags of `weir tune` and its subcommands.

use record::invalid_value;
use record::problem::{InvalidValue, suggestion};
use record::units::{DurationUnit, parse_duration_ns};
use tune::setting::{ROLES, Role};

use super::lab::ALLOW_GLOBAL;
use super::lab_experiment::{
    ALLOW_CHANGED_ENVIRONMENT, BLOCKS, DISCARD, DURATION, OUTPUT, QUICK, RERUNS, RESUME, SEED, SET,
};
use super::{CommandFlags, CommandInfo, Destination, Flag, command_flags, flag, switch};

/// Directory of journals, for tests and for machines without `/run`. Only the user and root may be able to change it.
const JOURNALS: Flag = flag("journals", "DIR").default("/run/weir-root/tune").values(&["journals"], &[]).doc(
    "Directory of the journals of applied settings; journals are obeyed only if no other user can \
     change them, the directory, or a directory above it",
);

pub(crate) const TUNE: CommandInfo = CommandInfo {
    name: "tune",
    about: "Check, apply, verify and revert host settings",
    doc: "A catalogue of sysctls, driver settings, limits, boot parameters and server options, each with its \
          effect, its risk and an assessment, is in the program. `weir tune check` compares this machine, or \
          somebody's sysctl.conf, with it. `weir tune apply` changes settings with a journal, so that `weir tune \
          revert`, a timeout, the end of a command or the next start after a crash restores them. `weir tune trial` measures \
          which of the settings of a profile help.",
    values: None,
    flags: &[],
    examples: &[("weir tune status", "settings that weir has changed")],
};

pub(crate) const CHECK: CommandInfo = CommandInfo {
    name: "tune check",
    about: "Check host settings, or a file with settings",
    doc: "Without --file: every setting of the catalogue on this machine, with its value, the recommended value for \
          the role and the memory, the reason, and the basis of the assessment (measured, documented, judgement). With \
          --file: every line of a sysctl.conf, a limits.conf, a tuned profile or a sysctl.d directory, with its \
          assessment for this kernel, the value now, the file of this machine that sets it, and what the line would \
          change. Needs no root; as root, values of network settings are also tried in a new network namespace, and the \
          kernel's answer decides. What cannot be read here is reported as not observable.\n\nsysctl.d(5): patterns \
          match the settings of this machine; names with a line of their own, and those excluded by -NAME, are left \
          out. Directories given together are read in the order of sysctl.d(5): by file name, /etc before /run before \
          /usr. A root directory (/) stands for its sysctl.d, sysctl.conf and limits.conf. A profile of tuned is read \
          with the profiles that it includes.\n\nExit \
          code 0: nothing to change. Exit code 3: settings to change, or lines that are harmful, invalid or rejected \
          by the kernel. Conditional and obsolete lines do not count. Exit code 2: a file cannot be read.",
    values: None,
    flags: TuneCheckFlags::FLAGS,
    examples: &[
        ("weir tune check", "settings of this machine that a proxy should change"),
        ("weir tune check --role origin --all", "the complete catalogue, for an origin"),
        ("weir tune check --file sysctl.conf", "judge every line of a file"),
        ("weir tune check --file /", "the files that this machine reads at boot"),
    ],
};

pub(crate) const APPLY: CommandInfo = CommandInfo {
    name: "tune apply",
    about: "Apply settings, with a journal to restore them",
    doc: "Values are profiles (latency, throughput, proxy, load-client, and sources-… for comparison), settings as \
          name=value, and files in the form of sysctl.conf, such as the minimal profile of `weir tune trial`; a \
          setting of an interface is name@eth0=value. The host is only changed with --host; --netns \
          changes one network namespace. All old values are in a journal on the disk before the first write. Every \
          value is read back; if one differs, all are restored. Settings that another apply manages are refused. \
          Settings of a profile that this kernel or this namespace does not have are skipped, with the reason. Boot \
          parameters and driver settings are reported, never set.\n\nWithout --for and without a command the \
          settings stay until `weir tune revert` or the next boot. With either, weir stays in the foreground, and \
          restores them at the end, or at Ctrl-C, SIGTERM or SIGHUP. After a crash the next `weir tune apply`, \
          `revert` or `status` restores them. With a command, its exit code is returned (128 + N after signal N).",
    values: Some((
        "PROFILE|NAME=VALUE|FILE",
        "Profiles, settings and files; then `-- COMMAND` to run with them",
    )),
    flags: ApplyFlags::FLAGS,
    examples: &[
        ("weir tune apply --dry-run proxy", "changes that a profile would make"),
        ("weir tune apply --dry-run net.core.somaxconn=16384", "one setting"),
    ],
};

pub(crate) const TRIAL: CommandInfo = CommandInfo {
    name: "tune trial",
    about: "Measure which settings of a profile help, and reduce the profile to those",
    doc: "Ablation of a profile: an ordinary experiment whose arms are none of the settings, the complete profile, the \
          profile without each setting (leave-one-out), and each setting alone (one-by-one). Each trial runs in new \
          network namespaces, so the host keeps its settings. Arms run in blocks in random order; each comparison has \
          its confidence interval, and is corrected for the number of comparisons. Settings that this kernel or a \
          namespace does not have, and those whose value is in force already, are not measured, and are listed. \
          Settings of interfaces (nic.gro=on) are set on the virtual links of the node, without effect on the host; rings and interrupt \
          delay are not on a virtual link. Settings of the complete machine need --allow-global: each trial then changes this host, with a journal, \
          and restores it, also at the next start after a crash.\n\nThe result: settings that help, that are redundant \
          (another one does the same), that have no effect, that hurt, that depend on the load or on each other, and \
          those that the trials do not decide. A second, short experiment compares the minimal profile with the \
          complete one. The output directory is that of weir lab run, and has tune-trial.json, minimal.conf (which \
          weir tune apply takes) and confirm/. Ctrl-C stops it and keeps a partial result; --resume continues.\n\n\
          Exit codes are those of weir lab run.",
    values: Some(("PROFILE|NAME=VALUE|FILE", "Profiles, settings and files in the form of sysctl.conf")),
    flags: &[
        flag("experiment", "FILE|NAME").values(&["connection-per-request"], &[]).doc(
            "Experiment without arms (weir lab run): its programs, network and loads; \
             connection-per-request is ready-made",
        ),
        flag("at", "client|subject|origin")
            .default("subject")
            .values(&["client", "origin"], &["server"])
            .doc("Node whose namespace gets the settings"),
        flag("metric", "NAME")
            .default("the file's, or responses_per_s")
            .values(&["p99_ns"], &["p98_ns"])
            .doc("Metric that decides"),
        flag("method", "both|leave-one-out|one-by-one")
            .default("both")
            .values(&["leave-one-out", "one-by-one"], &["all"])
            .doc("Arms of each setting; up to 15 settings with both, and 30 with one"),
        flag("role", "client|proxy|origin")
            .default("proxy")
            .values(&["client"], &["server"])
            .doc("Role of the node, for the assessments"),
        switch("no-confirm").doc("Do not run the minimal profile beside the complete one"),
        switch("check").doc(
            "Check the settings and the experiment without running it; prints the plan and the \
             expected duration",
        ),
        SET,
        DISCARD,
        BLOCKS,
        RERUNS,
        DURATION,
        QUICK,
        SEED,
        OUTPUT,
        RESUME,
        ALLOW_CHANGED_ENVIRONMENT,
        flag("json", "FILE|-")
            .values(&["-"], &[])
            .doc("Write the result as JSON (weir.tune-trial/1); - writes it to stdout, and nothing else"),
        ALLOW_GLOBAL,
    ],
    examples: &[(
        "weir tune trial --check sources-002-haproxy --experiment connection-per-request",
        "arms and expected duration",
    )],
};

pub(crate) const REVERT: CommandInfo = CommandInfo {
    name: "tune revert",
    about: "Restore the settings that weir has changed",
    doc: "Restores the old values of every apply, and reads them back. A setting that somebody else changed meanwhile \
          is left alone and reported, with exit code 1; --force restores it too.",
    values: None,
    flags: RevertFlags::FLAGS,
    examples: &[("weir tune revert", "restore everything")],
};

pub(crate) const STATUS: CommandInfo = CommandInfo {
    name: "tune status",
    about: "Print the settings that weir has changed",
    doc: "Lists every apply that is in force: its target, its end, and the old, the new and the present value of each \
          setting. Restores the settings of killed processes first.",
    values: None,
    flags: StatusFlags::FLAGS,
    examples: &[("weir tune status --json -", "the same as JSON")],
};

const ROLE: Flag = flag("role", "client|proxy|origin").default("proxy");

command_flags! {
    pub(crate) struct TuneCheckFlags {
        role: Role = ROLE.values(&["origin"], &["server"]).doc("Role of this machine").parsed_or(parse_role, Role::Proxy),
        files: Vec<String> = flag("file", "FILE|DIR")
            .repeatable()
            .values(&["sysctl.conf"], &[])
            .doc(
                "File to judge: sysctl.conf, limits.conf, a tuned profile, a sysctl.d directory, or a \
                 root directory; repeatable, in the order in which they take effect",
            )
            .texts(),
        all: bool = switch("all")
            .doc(
                "Also list the settings that need no change, and the options of servers and boot \
                 parameters",
            )
            .is_given(),
        json: Destination = flag("json", "FILE|-")
            .values(&["-"], &[])
            .doc("Write the result as JSON (weir.tune-check/1); - writes it to stdout, and nothing else")
            .destination(),
    }
}

command_flags! {
    pub(crate) struct ApplyFlags {
        host: bool = switch("host").doc("Change this host").is_given(),
        netns: Option<String> = flag("netns", "NAME")
            .values(&["lab"], &[])
            .doc("Change the network namespace NAME (ip netns), and run the command there")
            .text(),
        dry_run: bool = switch("dry-run").doc("Print the changes and write nothing").is_given(),
        time_limit_ns: Option<u64> = flag("for", "TIME")
            .values(&["10m"], &["soon", "0"])
            .doc("Restore the settings after this time; default unit: s")
            .parsed(parse_time_limit),
        persist: Option<String> = flag("persist", "FILE")
            .values(&["/etc/sysctl.d/90-weir.conf"], &[])
            .doc("Also write the settings to FILE for sysctl.d, with the reasons as comments")
            .text(),
        role: Role = ROLE
            .values(&["client"], &["server"])
            .doc("Role of this machine, for the assessments")
            .parsed_or(parse_role, Role::Proxy),
        journals: Option<String> = JOURNALS.text(),
    }
}

command_flags! {
    pub(crate) struct RevertFlags {
        force: bool = switch("force").doc("Restore settings that somebody else has changed, too").is_given(),
        journals: Option<String> = JOURNALS.text(),
    }
}

command_flags! {
    pub(crate) struct StatusFlags {
        json: Destination = flag("json", "FILE|-")
            .values(&["-"], &[])
            .doc("Write the result as JSON (weir.tune-status/1); - writes it to stdout, and nothing else")
            .destination(),
        journals: Option<String> = JOURNALS.text(),
    }
}

pub(crate) fn parse_role(text: &str) -> Result<Role, InvalidValue> {
    Role::from_name(text).ok_or_else(|| {
        let near = suggestion(text, ROLES.iter().map(|role| role.name()));
        invalid_value!("'{text}' is no role: client, proxy or origin{near}")
    })
}

fn parse_time_limit(text: &str) -> Result<u64, InvalidValue> {
    match parse_duration_ns(text, DurationUnit::Seconds)? {
        0 => Err(invalid_value!("the time must be above 0")),
        ns => Ok(ns),
    }
}

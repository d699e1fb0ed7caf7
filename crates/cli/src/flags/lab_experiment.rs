//! The flags of the commands that run experiments, and of those that look at what came of them.

use super::{CommandRow, FLAG, Flag};

/// As `weir lab try` has it.
const ALLOW_GLOBAL: Flag = Flag {
    long: "allow-global",
    doc: "Allow settings of the whole machine to be changed while it runs",
    ..FLAG
};

pub(crate) const RUN: CommandRow = CommandRow {
    name: "lab run",
    about: "Run an experiment: arms under loads, in blocks, until it is known which is better",
    doc: "FILE is an experiment in TOML; NAME is one of those that weir has in it (--list). Each arm \
          is the same programs with something changed. A block runs every arm under every load \
          once, in a random order, each with fresh programs; the baseline twice, so that it is seen \
          how far apart two results of one and the same thing are. There are blocks until the \
          interval of every ratio of the primary metric is narrow enough, or the most that were asked \
          for. A trial that something else disturbed does not count, and its block's arms are run again \
          under that load; what disturbed it is seen by the machine's own counters, never by the result, and after \
          it the next one waits for up to a minute.\n\nEverything is \
          kept in a folder: the file, the record of every trial, experiment.json, report.html and \
          report.md. No result is shown while it runs, because who sees one is tempted to stop at it. \
          Ctrl-C ends it with what is there; --resume goes on, also after a crash.\n\nThe exit code is 4 \
          when nothing of it can be believed: too few blocks were undisturbed, it was ended before its first \
          block was whole, or the load generator was the limit everywhere; and 1 when failing trials ended it, \
          whatever had been measured before.",
    values: Some(("FILE|NAME", "The experiment's file, or the name of a ready-made one")),
    flags: &[
        Flag {
            long: "list",
            doc: "List the ready-made experiments and what each needs; run nothing",
            ..FLAG
        },
        Flag {
            long: "print",
            value: "NAME",
            doc: "Print the file of a ready-made experiment, to be copied and changed; run nothing",
            right: &["allocator"],
            wrong: &["no-such-experiment"],
            ..FLAG
        },
        Flag {
            long: "check",
            doc: "Read the file and hold it against this machine, say what would be run and how long it \
                  takes, and run nothing",
            ..FLAG
        },
        Flag {
            long: "set",
            value: "NAME=VALUE",
            many: true,
            doc: "Give a parameter of the file another value; may be given several times",
            right: &["threads=2"],
            wrong: &["threads", "=2"],
            ..FLAG
        },
        Flag {
            long: "discard",
            value: "NAME=BOUND",
            many: true,
            doc: "Another bound of [discard], beyond which a trial does not count, for a machine whose \
                  neighbours are never quiet; may be given several times",
            right: &["steal=30%", "wake-up-ratio=10"],
            wrong: &["steal", "stele=1%", "steal=x"],
            ..FLAG
        },
        Flag {
            long: "blocks",
            value: "MIN[..MAX]",
            default: "as the file says, else 10..30",
            doc: "Fewest and most blocks; a single number: exactly so many",
            right: &["10", "10..30"],
            wrong: &["0", "x", "30..10", "1..", "..5", "1000000"],
            ..FLAG
        },
        Flag {
            long: "duration",
            short: Some('d'),
            value: "TIME",
            default: "as the file says, else 8s",
            doc: "Length of the load of each trial; bare: s",
            right: &["8s", "500ms"],
            wrong: &["0", "x", "2h"],
            ..FLAG
        },
        Flag {
            long: "quick",
            doc: "Loads of 3s, in as few blocks as can show a difference: six, and more where more than one \
                  comparison is tested",
            ..FLAG
        },
        Flag {
            long: "seed",
            value: "N",
            default: "from the clock; it is printed",
            doc: "Seed of the order of trials and of resampling",
            right: &["1"],
            wrong: &["x", "-1"],
            ..FLAG
        },
        Flag {
            long: "folder",
            value: "FOLDER",
            default: "weir-lab/NAME-DATE-TIME",
            doc: "Where everything is kept; it must not be there yet",
            right: &["allocators"],
            ..FLAG
        },
        Flag {
            long: "resume",
            value: "FOLDER",
            doc: "Go on with the experiment in this folder, as it was begun",
            right: &["weir-lab/allocator-20260102-030405"],
            ..FLAG
        },
        Flag {
            long: "allow-other",
            doc: "Go on although the machine, weir or a program is other than when it began; the report \
                  says what",
            ..FLAG
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the result as JSON there too; with - to stdout, and nothing else there",
            right: &["result.json"],
            ..FLAG
        },
        ALLOW_GLOBAL,
    ],
    examples: &[
        ("weir lab run --list", "the experiments that are ready to run"),
        ("weir lab run --check threads.toml", "whether a file is right, and how long it takes"),
        (
            "weir lab run --blocks 6 -d 500ms --seed 1 --folder first threads.toml",
            "run it, much shorter than it should be",
        ),
        ("weir lab run --resume first", "go on with it, if it had been ended"),
    ],
};

pub(crate) const LIST: CommandRow = CommandRow {
    name: "lab list",
    about: "List the experiments in a folder, and what came of each",
    doc: "When, its name, its arms and blocks, and the answer. Those that are not finished are listed \
          too.",
    values: Some(("FOLDER", "Where they are; weir-lab if not given")),
    flags: &[Flag { long: "json", doc: "Print the list as JSON", ..FLAG }],
    examples: &[("weir lab list .", "what was run here")],
};

pub(crate) const SHOW: CommandRow = CommandRow {
    name: "lab show",
    about: "Say again what came of an experiment, from the records of its trials",
    doc: "The comparisons are worked out again from the trials, so that a later weir may know more than \
          the one that ran them. Nothing in the folder is changed.",
    values: Some(("FOLDER", "The experiment's folder")),
    flags: &[
        Flag {
            long: "html",
            value: "FILE",
            doc: "Write the report as one page that needs nothing else",
            right: &["report.html"],
            ..FLAG
        },
        Flag {
            long: "markdown",
            value: "FILE|-",
            doc: "Write the report as Markdown; with - to stdout, and nothing else there",
            right: &["report.md"],
            ..FLAG
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the result as JSON; with - to stdout, and nothing else there",
            right: &["result.json"],
            ..FLAG
        },
    ],
    examples: &[
        ("weir lab show first", "what came of it"),
        ("weir lab show --html report.html --markdown report.md first", "the report, made anew"),
    ],
};

pub(crate) const COMPARE: CommandRow = CommandRow {
    name: "lab compare",
    about: "Compare two experiments, or runs, that were not run in turn",
    doc: "Two folders of experiments: arms of the same name under loads of the same name, trial by trial. \
          Two lists of records of weir load (--a, --b): run by run. Both are unpaired, by the test of Mann and \
          Whitney; and whatever else was different at the two times is in the difference too, which no \
          test can see. Two single records are set side by side without a test: the seconds of a run \
          depend on each other, so that they are no sample. What differs in plans and machines is listed.",
    values: Some(("A B", "Two folders of experiments, or two records of weir load")),
    flags: &[
        Flag {
            long: "a",
            value: "PATTERN",
            many: true,
            doc: "Records of the first list; * stands for anything in a file's name; may be given several \
                  times",
            right: &["before*.json"],
            ..FLAG
        },
        Flag {
            long: "b",
            value: "PATTERN",
            many: true,
            doc: "Records of the second list",
            right: &["after*.json"],
            ..FLAG
        },
        Flag {
            long: "effect",
            value: "SHARE",
            default: "2%",
            doc: "The smallest difference that matters",
            right: &["1%", "0.05"],
            wrong: &["x", "0", "101%"],
            ..FLAG
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "Write the comparison as JSON; with - to stdout, and nothing else there",
            right: &["comparison.json"],
            ..FLAG
        },
    ],
    examples: &[
        ("weir lab compare first first", "an experiment, and another one of the same kind"),
        ("weir lab compare run.json run.json", "two records: ratios, and no test"),
    ],
};

pub(crate) const SERVE: CommandRow = CommandRow {
    name: "lab serve",
    about: "Browse and compare experiments in a browser",
    doc: "Serves a list of the experiments in a folder, their reports, their raw files, and comparisons of \
          any two, to this machine only unless told otherwise: there is no password. What is under way \
          shows how far it is. It prints its address on the first line and ends with Ctrl-C.",
    values: Some(("FOLDER", "Where the experiments are; weir-lab if not given")),
    flags: &[Flag {
        long: "listen",
        value: "ADDRESS",
        default: "127.0.0.1:0",
        doc: "Where to listen; port 0 lets the kernel choose",
        right: &["127.0.0.1:8800", "[::1]:0"],
        wrong: &["8800", "unix:/tmp/x", "localhost:x"],
        ..FLAG
    }],
    examples: &[("weir lab serve .", "the experiments below this folder")],
};

//! The flags of `weir load report`.

use super::load::{BRIEF, VERBOSE};
use super::load_output::{FAIL_IF, HTML, JUNIT, MARKDOWN};
use super::{CommandInfo, Flag, flag, switch};

pub(crate) const REPORT: CommandInfo = CommandInfo {
    name: "load report",
    about: "Print, compare or merge records of runs",
    doc: "One record is printed as at the end of its run. Several are compared side by side with \
          the first or, with --merge, merged into one: counts and histograms are added, and \
          percentiles come from the merged histogram, never from averages.",
    values: Some(("FILE", "Records written by weir load --json")),
    flags: &[
        switch("merge").doc(
            "Merge the records into one; they must have one plan, driven from several \
             machines",
        ),
        flag("json", "FILE|-").doc(
            "Write the merged record, or of two records the second with its comparison with the \
             first: figures, intervals, decisions and the exit code",
        ),
        Flag {
            doc: "Write the result as Markdown tables, of two records with their comparison; - writes it to stdout, and \
                  nothing else",
            ..MARKDOWN
        },
        Flag {
            doc: "Write objectives, validity and, of two records, each condition of --fail-if as a JUnit test report; - \
                  writes it to stdout, and nothing else",
            ..JUNIT
        },
        Flag {
            doc: "Write one self-contained page of at most 600 kB: of one record, or of the second compared with the first",
            ..HTML
        },
        Flag {
            doc: "Regressions of the second record from the first that give exit code 3, e.g. 'p99>+10%,rate<-5%'; \
                  as of weir load",
            ..FAIL_IF
        },
        VERBOSE,
        BRIEF,
    ],
    examples: &[
        ("weir load report run.json", "print a record"),
        (
            "weir load report --html page.html --fail-if 'p99>+10%,rate<-5%' run.json run.json",
            "compare two records in a page; a regression is exit code 3",
        ),
        (
            "weir load report --merge --json both.json one.json two.json",
            "merge two runs that were driven at the same time",
        ),
    ],
};

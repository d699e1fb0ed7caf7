//! The flags of `weir proxy fmt`.

use super::{CommandFlags, CommandInfo, command_flags, switch};

pub(crate) const FMT: CommandInfo = CommandInfo {
    name: "proxy fmt",
    about: "Format configs of weir proxy",
    doc: "Writes the files in one layout: one blank line between tables, one blank around `=`, no blanks at the end of a \
          line, and arrays over 100 columns with one entry a line. Keys, values, comments and their order stay. A list that \
          is on several lines stays so. A file with errors is not changed (exit code 2). Files of `include` are formatted \
          only if they are named.",
    values: Some(("FILE", "Config files; -: from stdin to stdout")),
    flags: FmtFlags::FLAGS,
    examples: &[
        ("weir proxy fmt proxy.toml", "format a file in place"),
        ("weir proxy fmt --check proxy.toml", "check it, as for continuous integration"),
    ],
};

command_flags! {
    pub(crate) struct FmtFlags {
        check: bool = switch("check")
            .doc("Print the names of the files that are not formatted, and change nothing; exit code 1 if there is one")
            .is_given(),
    }
}

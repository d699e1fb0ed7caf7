//! Commands that print text generated from the flag tables.

use super::{CommandFlags, CommandInfo, command_flags, flag};

pub(crate) const COMPLETIONS: CommandInfo = CommandInfo {
    name: "completions",
    about: "Print shell completions",
    doc: "For bash, zsh, fish, elvish or powershell.",
    values: Some(("SHELL", "Shell: bash, zsh, fish, elvish or powershell")),
    flags: &[],
    examples: &[("weir completions bash", "completions for bash")],
};

pub(crate) const MAN: CommandInfo = CommandInfo {
    name: "man",
    about: "Write the manual pages into a directory",
    doc: "One page per command, for man(1).",
    values: Some(("DIR", "Output directory; created if missing")),
    flags: &[],
    examples: &[("weir man man1", "write weir.1, weir-load.1 and so on into man1/")],
};

pub(crate) const REFERENCE: CommandInfo = CommandInfo {
    name: "reference",
    about: "Print the reference of commands, flags, verdicts and errors in Markdown",
    doc: "All pages, one of them, or each as a file of a directory: docs/reference is that directory. docs/config.md is \
          the page `config`, with the config keys, metrics and log fields of weir proxy, docs/import.md the page `import`, with \
          the directives that weir proxy import translates, and docs/settings.md the page `settings`, with the host settings \
          of weir tune and their state on the running kernel.",
    values: Some((
        "PAGE",
        "Page: the name of a command (`load`, `lab-run`), `exit-codes`, `validity`, `bottlenecks`, `figures`, `errors`, \
         `targets`, `config`, `import` or `settings`; without it: all pages except the last three",
    )),
    flags: ReferenceFlags::FLAGS,
    examples: &[
        ("weir reference load", "the reference of a command"),
        ("weir reference --directory reference", "a file for each command, and an index"),
        ("weir reference config", "the reference of weir proxy's config, metrics and logs"),
        ("weir reference import", "the directives that weir proxy import translates"),
        ("weir reference settings", "the host settings, and their state on this kernel"),
    ],
};

command_flags! {
    pub(crate) struct ReferenceFlags {
        directory: Option<String> = flag("directory", "DIR")
            .values(&["reference"], &[])
            .doc(
                "Write each page into a file of this directory, README.md as their index; the directory is created if \
                 missing",
            )
            .text(),
    }
}

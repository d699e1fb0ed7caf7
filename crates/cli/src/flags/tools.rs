//! Commands that print what is generated from the flag tables.

use super::CommandRow;

pub(crate) const COMPLETIONS: CommandRow = CommandRow {
    name: "completions",
    about: "Print shell completions",
    doc: "For bash, zsh, fish, elvish or powershell.",
    values: Some(("SHELL", "bash, zsh, fish, elvish or powershell")),
    flags: &[],
    examples: &[("weir completions bash", "completions for bash")],
};

pub(crate) const MAN: CommandRow = CommandRow {
    name: "man",
    about: "Write the manual pages into a folder",
    doc: "One page a command, as man(1) reads them.",
    values: Some(("FOLDER", "Where to; it is made if need be")),
    flags: &[],
    examples: &[("weir man man1", "write weir.1, weir-load.1 and so on into man1/")],
};

pub(crate) const REFERENCE: CommandRow = CommandRow {
    name: "reference",
    about: "Print the reference of all commands, flags, verdicts and errors as Markdown",
    doc: "docs/reference.md is this text, and docs/config.md the one of the page `config`.",
    values: Some(("PAGE", "`config`: the keys of a proxy's config, its metrics and log fields")),
    flags: &[],
    examples: &[
        ("weir reference", "the reference"),
        ("weir reference config", "the reference of weir proxy's config, metrics and logs"),
    ],
};

//! `completions`, `man`, `reference`: output that is generated from the tables.

use std::path::PathBuf;

use clap_complete::Shell;
use record::invalid_value;
use record::problem::InputProblem;
use tune::settings_reference;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, ReferenceFlags, build_command_line};
use crate::output::{print, reference};

pub(super) fn completions(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let shell = match args.values().as_slice() {
        [name] => name.parse::<Shell>().map_err(|_| invalid_value!("unsupported shell '{name}'")),
        _ => Err(invalid_value!("name one shell")),
    };
    let shell = shell.map_err(|why| {
        let text = format!("{why} (write bash, zsh, fish, elvish or powershell)");
        vec![InputProblem::new("SHELL", text)]
    })?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut build_command_line(), "weir", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}

pub(super) fn man(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let [directory] = args
        .values()
        .try_into()
        .map_err(|_| vec![InputProblem::new("DIR", "name one directory for the pages")])?;
    let directory = PathBuf::from(directory);
    std::fs::create_dir_all(&directory).map_err(|error| Failure::cannot(directory.display(), error))?;
    for (name, page) in reference::manual_pages(&build_command_line())? {
        record::file::write_atomically(&directory.join(name), &page)?;
    }
    Ok(Exit::Done)
}

pub(super) fn reference(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let names = args.values();
    let pages = reference::pages();
    if let Some(directory) = ReferenceFlags::parse(args)?.directory {
        if !names.is_empty() {
            let text = "all pages are written; leave out --directory to print one";
            return Err(vec![InputProblem::new("PAGE", text)].into());
        }
        let directory = PathBuf::from(directory);
        std::fs::create_dir_all(&directory).map_err(|error| Failure::cannot(directory.display(), error))?;
        for page in pages {
            let file = directory.join(format!("{}.md", page.name));
            record::file::write_atomically(&file, page.text.as_bytes())?;
        }
        return Ok(Exit::Done);
    }
    match names.iter().map(|name| name.trim_start_matches("weir ")).collect::<Vec<_>>()[..] {
        [] => print(&pages.iter().map(|page| page.text.as_str()).collect::<Vec<_>>().join("\n")),
        ["config"] => print(&proxy_control::reference()),
        ["import"] => print(&import::markdown()),
        ["settings"] => print(&settings_reference::settings_markdown()),
        ref words => match pages.iter().find(|page| page.name == words.join("-")) {
            Some(page) => print(&page.text),
            None => return Err(vec![InputProblem::new("PAGE", unknown_page(&pages))].into()),
        },
    }
    Ok(Exit::Done)
}

fn unknown_page(pages: &[reference::ReferencePage]) -> String {
    let names: Vec<&str> = pages.iter().skip(1).map(|page| page.name.as_str()).collect();
    format!("unknown page (pages: {}, config, import, settings)", names.join(", "))
}

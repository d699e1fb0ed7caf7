//! `completions`, `man`, `reference`: what is generated from the tables.

use std::path::PathBuf;

use clap_complete::Shell;
use record::problem::Problem;

use crate::exit::{Exit, Failure};
use crate::flags::{Typed, program};
use crate::output::{print, reference};

pub(super) fn completions(typed: Typed<'_>) -> Result<Exit, Failure> {
    let shell = match typed.values().as_slice() {
        [name] => name.parse::<Shell>(),
        _ => Err("one shell is needed".to_owned()),
    };
    let shell = shell.map_err(|why| {
        let text = format!("{why} (write bash, zsh, fish, elvish or powershell)");
        vec![Problem::new("SHELL", text)]
    })?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program(), "weir", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(Exit::Done)
}

pub(super) fn man(typed: Typed<'_>) -> Result<Exit, Failure> {
    let [folder] = typed.values().try_into().map_err(|_| {
        vec![Problem::new("FOLDER", "one folder is needed, to write the pages into")]
    })?;
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder).map_err(|error| Failure::cannot(folder.display(), error))?;
    for (name, page) in reference::manual(&program())? {
        record::file::write_whole(&folder.join(name), &page)?;
    }
    Ok(Exit::Done)
}

pub(super) fn reference(typed: Typed<'_>) -> Result<Exit, Failure> {
    let pages = typed.values();
    match pages.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print(&reference::markdown()),
        ["config"] => print(&proxy::reference()),
        _ => {
            let text = "there is one page beside the reference itself: config";
            return Err(vec![Problem::new("PAGE", text)].into());
        }
    }
    Ok(Exit::Done)
}

//! `latlab man` and `latlab completions`: generated from the definition of the command line when
//! latlab is installed, so they are never out of date.

use std::io::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;
use kit_console::Allowed;

use crate::options::{Cli, Completions, Man};

/// Writes a page for latlab and one for each subcommand; without a directory, prints the first page.
pub fn man(arguments: Man) -> Result<u8> {
    let Some(directory) = arguments.directory else {
        let page = clap_mangen::Man::new(Cli::command());
        kit_console::print(Allowed::Text, |out| page.render(out))?;
        return Ok(0);
    };
    std::fs::create_dir_all(&directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))?;
    Ok(0)
}

pub fn completions(arguments: Completions) -> Result<u8> {
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "latlab", &mut script);
    kit_console::print(Allowed::Anything, |out| out.write_all(&script))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_its_page_and_is_completed() {
        let directory = tempfile::tempdir().expect("a directory");
        man(Man {
            directory: Some(directory.path().to_path_buf()),
        })
        .expect("temporary files can be written");
        let mut script = Vec::new();
        let shell = clap_complete::Shell::Bash;
        clap_complete::generate(shell, &mut Cli::command(), "latlab", &mut script);
        let script = String::from_utf8(script).expect("UTF-8");
        let command = Cli::command();
        let shown = command
            .get_subcommands()
            .filter(|subcommand| !subcommand.is_hide_set());
        for subcommand in shown {
            let name = subcommand.get_name();
            let page = directory.path().join(format!("latlab-{name}.1"));
            assert!(page.exists(), "{}", page.display());
            assert!(script.contains(name), "{name}");
        }
    }
}

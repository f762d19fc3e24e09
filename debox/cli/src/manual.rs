//! `debox man` and `debox completions`: generated from the definition of the command line when
//! debox is installed, so they are never out of date.

use std::io::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;
use kit_console::Allowed;

use crate::options::{Cli, Completions, Man};

/// Writes a page for debox and one for each subcommand; without a directory, prints the first page.
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
    clap_complete::generate(arguments.shell, &mut Cli::command(), "debox", &mut script);
    kit_console::print(Allowed::Anything, |out| out.write_all(&script))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    /// The subcommands that are not hidden.
    fn subcommands() -> Vec<String> {
        let command = Cli::command();
        let shown = command
            .get_subcommands()
            .filter(|subcommand| !subcommand.is_hide_set());
        shown
            .map(|subcommand| subcommand.get_name().to_string())
            .collect()
    }

    #[test]
    fn every_subcommand_has_its_page() {
        let directory = std::env::temp_dir().join(format!("debox-man-{}", std::process::id()));
        man(Man {
            directory: Some(directory.clone()),
        })
        .expect("temporary files can be written");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect(name);
        let main = read("debox.1");
        let pages: Vec<(String, String)> = subcommands()
            .into_iter()
            .map(|name| (read(&format!("debox-{name}.1")), name))
            .collect();
        std::fs::remove_dir_all(&directory).expect("own directory");
        assert!(pages.len() >= 3);
        for (page, name) in pages {
            assert!(
                main.contains(&format!("debox\\-{name}(1)")),
                "{name} in {main}"
            );
            assert!(page.contains(".SH OPTIONS"), "{page}");
        }
    }

    #[test]
    fn every_shell_completes_every_subcommand() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::Elvish,
            Shell::PowerShell,
        ] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "debox", &mut script);
            let script = String::from_utf8(script).expect("UTF-8");
            for name in subcommands() {
                assert!(script.contains(&name), "{name} for {shell}");
            }
        }
    }
}

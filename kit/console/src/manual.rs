//! Manual pages and completions of shells, made from a command line's own definition, so neither can go stale.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{print, Allowed};

#[derive(Args)]
pub struct Man {
    /// Directory to write one page for each subcommand to; without it, the main page is printed
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

#[derive(Args)]
pub struct Completions {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Writes a page for the program and one for each of its subcommands, or prints the first.
///
/// # Errors
///
/// The output cannot be written; the error names the directory.
pub fn man(command: Command, arguments: &Man) -> io::Result<()> {
    match &arguments.directory {
        Some(directory) => write_pages(command, directory).map_err(|error| {
            let text = format!(
                "cannot write manual pages to {}: {error}",
                directory.display()
            );
            io::Error::new(error.kind(), text)
        }),
        None => {
            let page = clap_mangen::Man::new(command);
            print(Allowed::Text, |out| page.render(out))
        }
    }
}

fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)
}

/// Prints the script with which a shell completes the program's command line.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn completions(command: &mut Command, arguments: &Completions) -> io::Result<()> {
    let script = script(command, arguments.shell);
    print(Allowed::Anything, |out| out.write_all(&script))
}

fn script(command: &mut Command, shell: Shell) -> Vec<u8> {
    let name = command.get_name().to_string();
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    script
}

/// For the tests of programs: every subcommand that help shows has a page of its own, the main page names it, and
/// every shell completes it.
///
/// # Panics
///
/// One of them is missing.
pub fn check(command: &Command) {
    let program = command.get_name();
    let directory = std::env::temp_dir().join(format!("{program}-man-{}", std::process::id()));
    let arguments = Man {
        directory: Some(directory.clone()),
    };
    man(command.clone(), &arguments).expect("temporary files can be written");
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect(name);
    let main = read(&format!("{program}.1"));
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    let names: Vec<&str> = shown.map(Command::get_name).collect();
    assert!(names.len() >= 3, "{names:?}");
    let pages: Vec<String> = names
        .iter()
        .map(|name| read(&format!("{program}-{name}.1")))
        .collect();
    std::fs::remove_dir_all(&directory).expect("own directory");
    for (name, page) in names.iter().zip(pages) {
        // A manual page has hyphens as minus signs.
        let entry = format!("{program}\\-{}(1)", name.replace('-', "\\-"));
        assert!(main.contains(&entry), "{name} in {main}");
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    for shell in [
        Shell::Bash,
        Shell::Zsh,
        Shell::Fish,
        Shell::Elvish,
        Shell::PowerShell,
    ] {
        let script = String::from_utf8(script(&mut command.clone(), shell)).expect("UTF-8");
        for name in &names {
            assert!(script.contains(name), "{name} for {shell}");
        }
    }
}

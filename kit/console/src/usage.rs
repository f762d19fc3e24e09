//! Parses the command line, and prints help, the version and usage errors.

use std::io::Write;

use clap::Parser;

use crate::clean::Allowed;
use crate::streams::{self, say_error};

/// The same status as in other commands.
const USAGE_ERROR: u8 = 2;

/// The command line, or the exit status if there is nothing to run: 0 after help that was asked for, 2
/// for a usage error, `failed` if the help cannot be written.
pub fn parse<C: Parser>(program: &str, failed: u8) -> Result<C, u8> {
    let error = match C::try_parse() {
        Ok(line) => return Ok(line),
        Err(error) => error,
    };
    let words = |allowed| match allowed {
        Allowed::Colours => error.render().ansi().to_string(),
        _ => error.render().to_string(),
    };
    if error.use_stderr() {
        let allowed = streams::error_colours();
        // The exit status reports it, too.
        let _ = streams::print_error(allowed, |out| out.write_all(words(allowed).as_bytes()));
        return Err(USAGE_ERROR);
    }
    let allowed = streams::colours();
    let printed = streams::print(allowed, |out| out.write_all(words(allowed).as_bytes()));
    Err(match printed {
        Ok(()) => 0,
        Err(error) => {
            say_error(program, &error.to_string());
            failed
        }
    })
}

//! Standard output and standard error of DeBox's programs.
//!
//! Names of processes, files and functions, arguments and replies come from outside, and must not control
//! the reader's terminal. [`printable`] turns such a field into one harmless line. [`Clean`] is the second
//! line of defence: all output goes through it, and it escapes whatever a field could have brought along.
//!
//! Output never panics. If the reader closes the pipe, output ends silently. Any other failure of standard
//! output is an error with an explanation. A failure of standard error does not change the exit status.

mod clean;
#[cfg(feature = "manual")]
pub mod manual;
mod printable;
mod streams;
#[cfg(feature = "table")]
pub mod table;
mod terminal;
#[cfg(feature = "clap")]
mod usage;

pub use clean::{Allowed, Clean};
pub use printable::{is_printable, printable};
pub use streams::{
    colours, error_colours, error_is_read, is_read, print, print_error, say, say_error,
    StandardOutput,
};
pub use terminal::terminal_width;
#[cfg(feature = "clap")]
pub use usage::parse;

/// Writes one line to standard error, with the syntax of `format!`.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::say(&format!($($words)*)) };
}

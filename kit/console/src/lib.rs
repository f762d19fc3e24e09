//! What DeBox's programs write to standard output and standard error.
//!
//! Names of processes, files and functions, arguments and replies come from outside, and must not steer
//! the reader's terminal. [`printable`] shows such a field in one line. [`Clean`] is the second line of
//! defence: all output goes through it, and it lets nothing through that a field could have brought along.
//!
//! Output fails without a panic. A reader who has seen enough ends the output quietly, any other failure of
//! standard output is an error in words, and a failure of standard error changes no exit status.

mod clean;
#[cfg(feature = "manual")]
pub mod manual;
mod printable;
mod streams;
#[cfg(feature = "clap")]
mod usage;

pub use clean::{Allowed, Clean};
pub use printable::{is_printable, printable};
pub use streams::{
    colours, error_colours, error_is_read, is_read, print, print_error, say, say_error,
    StandardOutput,
};
#[cfg(feature = "clap")]
pub use usage::parse;

/// Writes one line to standard error, in the way of `format!`.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::say(&format!($($words)*)) };
}

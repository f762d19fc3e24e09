//! Tests of `latlab analyze`, from its input files to its output.

mod causes;
mod command;
mod files;
mod hostile;
mod page;

//! `latlab analyze` from files to what it prints.

mod causes;
mod command;
mod files;
mod hostile;
mod page;

//! A generator process: reads what it is to do from standard input, says how far it is, and in the end
//! how it went, as lines of JSON.

use std::io::{self, Read, Write};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::load::{self, Config, Outcome};

/// A line of a generator process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Progress { rows: u64, failures: u64 },
    Done(Outcome),
    Failed(String),
}

fn say(said: &Said) -> Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    io::stdout().write_all(&line)?;
    Ok(())
}

/// The whole life of the process.
pub fn work() -> Result<()> {
    crate::sys::end_with_parent();
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let done = serde_json::from_str::<Config>(&text)
        .context("a generator process is started by latlab, not by hand")
        .and_then(|config| {
            crate::sys::raise_descriptors().context("cannot ask for the number of descriptors")?;
            // Nobody reading is no reason to end.
            load::run(&config, |rows, failures| {
                drop(say(&Said::Progress { rows, failures }));
            })
        });
    say(&match done {
        Ok(outcome) => Said::Done(outcome),
        Err(error) => Said::Failed(format!("{error:#}")),
    })
}

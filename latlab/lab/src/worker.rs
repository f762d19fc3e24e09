//! A generator process: reads its task from standard input, and writes its progress and finally its
//! result as lines of JSON.

use std::io::{self, Read, Write};

use anyhow::{Context, Result};
use kit_console::{Allowed, StandardOutput};
use serde::{Deserialize, Serialize};

use crate::load::{self, Config, Outcome, SoFar};
use crate::{rows, sys};

/// A killed latlab has exited within this time.
const GONE_MS: i32 = 200;

/// A line of a generator process's output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Progress(SoFar),
    Done(Box<Outcome>),
    Failed(String),
}

fn say(said: &Said) -> Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    let mut out = StandardOutput::open(Allowed::Json);
    out.write_all(&line)?;
    out.finish()?;
    Ok(())
}

/// Runs the whole process.
pub fn work() -> Result<()> {
    sys::end_with_parent();
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let config = serde_json::from_str::<Config>(&text)
        .context("a generator process is started by latlab, not by hand")?;
    let done = make_load(&config);
    let interrupted = matches!(&done, Ok(outcome) if outcome.interrupted);
    let told = say(&match done {
        Ok(outcome) => Said::Done(Box::new(outcome)),
        Err(error) => Said::Failed(format!("{error:#}")),
    });
    // A killed process does not exit at once: the message may still have fitted into the pipe.
    #[expect(clippy::disallowed_methods, reason = "nothing is written to it")]
    let out = io::stdout();
    let alone = told.is_err() || interrupted && sys::reader_goes(&out, GONE_MS);
    match config.spool.parent() {
        Some(left) if alone => {
            if config.process == 0 {
                kit_console::say!(
                    "latlab: killed; what was measured is left in {}: {}",
                    left.display(),
                    rows::advice(left)
                );
            }
            Ok(())
        }
        _ => told,
    }
}

fn make_load(config: &Config) -> Result<Outcome> {
    sys::raise_descriptors().context("cannot ask for the number of descriptors")?;
    // A closed pipe does not end the run.
    load::run(config, |so_far| drop(say(&Said::Progress(so_far))))
}

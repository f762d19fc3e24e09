// SPDX-License-Identifier: MIT OR Apache-2.0
//! `debox top`: a live view of who waits for what.

mod batch;
mod draw;
mod draw_thread;
mod facts;
mod json;
mod loops;
mod process_names;
mod recordings;
mod rows;
mod screen;
mod text;
mod thread_page;
mod timeline;
mod view;

use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use debox::live::Live;
use debox::targets::Target;
use kit_console::{Allowed, StandardOutput};

use crate::attach::{is_stopped, stop_at_signals};
use crate::following::Following;
use crate::options::{Format, Top};
use crate::run;
use facts::Known;
use rows::Choice;

/// How long to wait for events before other work is done.
const POLL: Duration = Duration::from_millis(50);

/// The shortest interval: a look takes milliseconds.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

pub fn top(arguments: Top) -> Result<u8> {
    run::refuse_nested()?;
    if arguments.interval < INTERVAL_MIN {
        bail!("--interval is 100ms at least");
    }
    if !arguments.batch && !kit_console::is_read() {
        bail!("standard output is no terminal: --batch prints tables");
    }
    let mut targets = arguments.targets.list();
    if targets.is_empty() {
        targets.push(Target::All);
    }
    let mut following = Following::of(&targets, arguments.only)?;
    let options = Live::options(arguments.max_threads, arguments.only);
    let mut live = Live::open(options.clone())?;
    stop_at_signals();
    following.say_cost(&options)?;
    following.begin(&mut live)?;
    let choice = Choice {
        by: arguments.by,
        sort: arguments.sort,
        filter: arguments.filter.clone(),
        with_idle: arguments.idle,
        within: Vec::new(),
    };
    match arguments.batch {
        true => print_tables(&mut live, &mut following, &arguments, &choice)?,
        false => screen::run(&mut live, &mut following, &arguments, choice)?,
    }
    following.say_notes();
    Ok(0)
}

fn print_tables(
    live: &mut Live,
    following: &mut Following,
    arguments: &Top,
    choice: &Choice,
) -> Result<()> {
    let mut known = Known::default();
    known.names.shows_inside = arguments.inside;
    let mut left = arguments.count;
    while !is_stopped() && left != Some(0) && following.goes_on(live)? {
        wait(live, following, Instant::now() + arguments.interval)?;
        let facts = known.facts(live.look()?);
        let rows = rows::rows(&facts, choice);
        let (text, allowed) = match arguments.format {
            Format::Table => (
                batch::table(&facts, &rows, choice.by, arguments.rows),
                Allowed::Text,
            ),
            Format::Json => {
                let filter = choice.filter.as_ref().map(ToString::to_string);
                let shown = &rows[..rows.len().min(arguments.rows)];
                let object = json::of(&facts, shown, choice.by, filter, &choice.within);
                (serde_json::to_string(&object)? + "\n", Allowed::Json)
            }
        };
        let mut out = StandardOutput::open(allowed);
        match out.write_all(text.as_bytes()).and_then(|()| out.finish()) {
            // The reader has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot write to standard output")?,
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Receives events until then.
fn wait(live: &mut Live, following: &mut Following, until: Instant) -> Result<()> {
    while !is_stopped() && Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        following.wait(live, left.min(POLL))?;
        live.poll(Duration::ZERO)?;
    }
    Ok(())
}

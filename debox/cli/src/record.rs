//! `debox record`: keeps every call of a program.

mod arguments;
mod sink;

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use debox::{Outcome, Recorder};
use debox_history::Lost;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kit_console::say;

use crate::attach::{is_stopped, stop_at_signals};
use crate::command::{self, Command};
use crate::following::Following;
use crate::options::{Record, Repair};
use crate::output;
use crate::preload::Preload;
use crate::run::{self, SESSION_VARIABLE};
use crate::tappable;
use crate::units;
use arguments::texts;
use sink::{Sink, Written};

/// How long to wait for records before other work is done.
const POLL: Duration = Duration::from_millis(20);

/// Recordings that end sooner show no progress line.
const QUICK: Duration = Duration::from_secs(2);

/// Minimum time between two files that triggers cause; triggers may fire more often.
const WRITE_EVERY: Duration = Duration::from_secs(1);

static WRITE: AtomicBool = AtomicBool::new(false);

extern "C" fn write_flight(_: libc::c_int) {
    WRITE.store(true, Ordering::Relaxed);
}

pub fn record(arguments: Record) -> Result<u8> {
    run::refuse_nested()?;
    // Resolved before probes are loaded, so that a mistake is reported at once.
    let program = arguments.command.first().map(|name| command::find(name));
    let program = program.transpose()?;
    if let (true, Some(program)) = (arguments.user_level, &program) {
        tappable::require_tappable(program, "record it without --user-level")?;
    }
    let following = match program {
        None => Some(Following::find(&arguments.targets, arguments.only)?),
        Some(_) => None,
    };
    let mut sink = Sink::open(&arguments)?;
    let mut recorder = Recorder::open(arguments.session_options())?;
    let preload = recorder.tap_address().map(|_| Preload::install());
    let preload = preload.transpose()?;
    handle(libc::SIGUSR1, write_flight);
    if !arguments.trigger.is_empty() {
        let mut last: Option<Instant> = None;
        recorder.on_trigger(move |_| {
            if last.is_none_or(|last| last.elapsed() >= WRITE_EVERY) {
                last = Some(Instant::now());
                WRITE.store(true, Ordering::Relaxed);
            }
        });
    }
    let status = match (&program, following) {
        (Some(program), _) => {
            let mut environment: Vec<(&str, OsString)> =
                vec![(SESSION_VARIABLE, std::process::id().to_string().into())];
            if let (Some(preload), Some(address)) = (&preload, recorder.tap_address()) {
                environment.extend(preload.environment(address));
            }
            let mut command = Command::prepare(program, &arguments.command, environment)?;
            run::pass_signals_to(command.pid);
            recorder.enrol(command.pid as u32, true)?;
            command.release()?;
            record_command(&mut recorder, &mut sink, &command, arguments.follow).unwrap_or_else(
                |error| {
                    // The command goes on undisturbed.
                    say!("debox: the recording ends here: {error:#}");
                    sink.take_no_more();
                    command.wait()
                },
            )
        }
        (None, following) => {
            let mut following = following.context("name a command or a target")?;
            stop_at_signals();
            following.say_cost(&arguments.session_options())?;
            following.begin(&mut recorder)?;
            record_processes(
                &mut recorder,
                &mut sink,
                Some(&mut following),
                arguments.duration,
            )?;
            following.say_notes();
            0
        }
    };
    let outcome = Outcome {
        command: texts(&arguments.command),
        exit_status: program.is_some().then_some(status),
    };
    let ended = finish(recorder, sink, outcome, arguments.report);
    match ended {
        Err(error) if program.is_some() => say!("debox: the recording has no end: {error:#}"),
        ended => ended?,
    }
    Ok(status as u8)
}

fn finish(
    mut recorder: Recorder,
    mut sink: Sink,
    outcome: Outcome,
    wants_report: bool,
) -> Result<()> {
    if WRITE.load(Ordering::Relaxed) {
        // SIGUSR1 arrived just before the end: records that are still to come belong to this file.
        take_in(&mut recorder, &mut sink, &ProgressBar::hidden())?;
    }
    let (report, missing) = recorder.finish(outcome, &mut |call| sink.append(call))?;
    let written = sink.finish(&missing, &report);
    if wants_report {
        output::print(&report)?;
    }
    say_written(&written?);
    // Otherwise the report has said it.
    if !wants_report {
        for deadlock in &report.deadlocks {
            say!("debox: {}", deadlock.title());
            deadlock
                .lines()
                .iter()
                .for_each(|line| say!("debox:   {line}"));
        }
        for sentence in &report.unseen {
            say!("debox: {sentence}");
        }
        if missing.stamps_refused > 0 {
            say!(
                "debox: {} stamps of the program's own around its calls were refused: they cannot be true",
                missing.stamps_refused
            );
        }
    }
    Ok(())
}

fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers only store to atomics.
    unsafe { libc::signal(signal, handler as libc::sighandler_t) };
}

fn record_command(
    recorder: &mut Recorder,
    sink: &mut Sink,
    command: &Command,
    follows: bool,
) -> Result<i32> {
    // The terminal belongs to the command.
    let progress = ProgressBar::hidden();
    let status = loop {
        take_in(recorder, sink, &progress)?;
        if let Some(status) = command.try_wait() {
            break status;
        }
    };
    // A thread's last context switch comes shortly after its parent can learn that it has ended.
    let deadline = Instant::now() + run::LAST_SWITCH;
    while recorder.threads_alive(command.pid as u32)? > 0 && Instant::now() < deadline {
        take_in(recorder, sink, &progress)?;
    }
    if follows {
        stop_at_signals();
        record_processes(recorder, sink, None, None)?;
    }
    Ok(status)
}

fn record_processes(
    recorder: &mut Recorder,
    sink: &mut Sink,
    mut following: Option<&mut Following>,
    duration: Option<Duration>,
) -> Result<()> {
    let begin = Instant::now();
    let deadline = duration.map(|duration| begin + duration);
    let progress = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    let style = ProgressStyle::with_template("recording for {elapsed}: {msg}");
    progress.set_style(style.context("the line's template is wrong")?);
    while !is_stopped()
        && deadline.is_none_or(|deadline| Instant::now() < deadline)
        && match &following {
            Some(following) => following.goes_on(recorder)?,
            None => recorder.has_threads()?,
        }
    {
        if let Some(following) = following.as_mut() {
            following.wait(recorder, Duration::ZERO)?;
        }
        take_in(recorder, sink, &progress)?;
        if progress.is_hidden() && begin.elapsed() >= QUICK {
            // Nothing is drawn if standard error is no terminal.
            progress.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        }
        let records = units::counted(sink.records(), "record");
        progress.set_message(match duration {
            Some(duration) => format!("{records}, until {} or Ctrl-C", words_of(duration)),
            None => format!("{records}, until Ctrl-C"),
        });
    }
    progress.finish_and_clear();
    Ok(())
}

fn words_of(duration: Duration) -> String {
    units::time(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads new records. Messages are printed above the progress line.
fn take_in(recorder: &mut Recorder, sink: &mut Sink, progress: &ProgressBar) -> Result<()> {
    let mut wait = POLL;
    while recorder.poll(wait, &mut |call| sink.append(call))? {
        wait = Duration::ZERO;
        sink.tick(recorder)?;
    }
    sink.tick(recorder)?;
    for note in sink.take_notes() {
        progress.suspend(|| say!("debox: {note}"));
    }
    if WRITE.swap(false, Ordering::Relaxed) {
        let written = sink.write_flight(recorder);
        progress.suspend(|| match written {
            Ok(Some(written)) => say_written(&written),
            Ok(None) => say!("debox: SIGUSR1 writes nothing without --flight"),
            Err(error) => {
                say!("debox: the flight recorder was not written: {error:#}; it goes on in memory");
            }
        });
    }
    Ok(())
}

fn say_written(written: &Written) {
    match written.files.as_slice() {
        [] if written.flights > 0 => say!(
            "debox: the flight recorder was written {}; what came since was not",
            match written.flights {
                1 => "once".to_string(),
                times => format!("{times} times"),
            }
        ),
        [] => say!("debox: no records were written"),
        files if written.rows == 0 => say!("debox: 0 records in {}", files.join(", ")),
        files => say!(
            "debox: {} of {} in {} ({}, {} bytes per record)",
            units::counted(written.rows, "record"),
            units::time(written.span_ns),
            files.join(", "),
            units::bytes(written.bytes),
            written.bytes / written.rows
        ),
    }
    // Records that could not be written are reported with their times.
    let lost = &Lost {
        unwritten: 0,
        ..written.lost
    };
    if !lost.is_none() {
        say!(
            "debox: lost: {} records, {} sleeps, {} stacks, {} threads, {} events (see --buffer and \
             --max-threads)",
            units::count(lost.records),
            units::count(lost.sleeps),
            units::count(lost.stacks),
            units::count(lost.threads),
            units::count(lost.probe_misses)
        );
    }
    for gap in &written.gaps {
        say!("debox: {gap}");
    }
    if let Some(failure) = &written.failure {
        say!("debox: {failure}");
    }
    if written.dropped_early > 0 {
        say!(
            "debox: --flight-memory was too small: {} s of the records went before their time",
            written.dropped_early
        );
    }
}

/// `debox repair`.
pub fn repair(arguments: &Repair) -> Result<u8> {
    let file = arguments.file.as_path();
    let (place, repaired) = match &arguments.output {
        None => (file.to_path_buf(), debox_history::repair(file)?),
        Some(output) => {
            let (place, repaired) = debox_history::repair_into(file, output)?;
            (place, Some(repaired))
        }
    };
    match repaired {
        None => say!("debox: {} is whole", place.display()),
        Some(repaired) => say!(
            "debox: {} has {} records now, {} of them from its tail; {} of a group that was not \
             whole are gone",
            place.display(),
            units::count(repaired.rows),
            units::count(repaired.from_tail),
            units::bytes(repaired.cut_off)
        ),
    }
    Ok(0)
}

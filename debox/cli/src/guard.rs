//! `debox guard`: a test that an event loop never blocks.

mod result;
mod text;
mod watch;

use std::ffi::OsString;
use std::io::{BufRead, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use debox::runtimes::Runtimes;
use debox::{Detail, Options, Outcome, Recorder};
use kit_console::{Allowed, StandardOutput};
use kit_files::{output, same};

use crate::command::{self, Command};
use crate::following::Following;
use crate::options::{Guard, GuardFormat};
use crate::run::{self, SESSION_VARIABLE};
use result::{Guarded, Times};
use watch::{Rules, Watch};

const POLL: Duration = Duration::from_millis(20);

/// Bytes of records that the probes may produce before this process reads them.
const BUFFER: u32 = 64 << 20;

/// How long a command may take to end after SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Exit status if a loop blocked, or if that cannot be ruled out.
const BLOCKED: u8 = 3;

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

pub fn guard(arguments: Guard) -> Result<u8> {
    run::refuse_nested()?;
    if let Some(path) = &arguments.output {
        same::refuse_inputs(path, arguments.rules.iter().map(|rules| rules.as_path()))?;
    }
    let runtimes = runtimes(&arguments)?;
    let program = arguments.command.first().map(|name| command::find(name));
    let program = program.transpose()?;
    let following = match program {
        None => Some(Following::find(&arguments.targets, false)?),
        Some(_) => None,
    };
    // Checked first, so that a result is not lost because its file cannot be written.
    if let Some(path) = &arguments.output {
        output::check(path)?;
    }
    let options = Options {
        detail: Detail {
            sleeps: true,
            callsites: true,
            ..Detail::default()
        },
        slow_ns: arguments.max_blocked_ns(),
        adopts_sleeps: !arguments.targets.is_empty(),
        history_bytes: BUFFER,
        ..Options::default()
    };
    let mut session = Session {
        recorder: Recorder::open(options.clone())?,
        watch: Watch::new(Rules {
            threads: arguments.thread.clone(),
            allowed: arguments.allow.clone(),
            max_blocked_ns: arguments.max_blocked_ns(),
            runtimes,
        }),
        times: Times::now(),
        streams: arguments.stream,
        told: 0,
        ends_at_first: arguments.first,
    };
    let status = match (&program, following) {
        (Some(program), _) => {
            let environment: Vec<(&str, OsString)> =
                vec![(SESSION_VARIABLE, std::process::id().to_string().into())];
            let mut command = Command::prepare(program, &arguments.command, environment)?;
            run::pass_signals_to(command.pid);
            session.recorder.enrol(command.pid as u32, true)?;
            command.release()?;
            session.guard_command(&mut command, arguments.duration)?
        }
        (None, Some(mut following)) => {
            for signal in [libc::SIGINT, libc::SIGTERM] {
                let handler = stop as extern "C" fn(libc::c_int) as libc::sighandler_t;
                // SAFETY: the handler only stores to an atomic.
                unsafe { libc::signal(signal, handler) };
            }
            following.say_cost(&options)?;
            // Children that these have already are not guarded.
            for pid in following.named() {
                session.recorder.enrol(*pid, false)?;
            }
            following.begin_unnamed(&mut session.recorder)?;
            session.guard_processes(&mut following, arguments.duration)?;
            following.say_notes();
            0
        }
        (None, None) => bail!("name a command, or a target such as --pid"),
    };
    let guarded = session.finish()?;
    let text = match arguments.format {
        GuardFormat::Text => text::text(&guarded, &arguments),
        GuardFormat::Json => guarded.json()?,
        GuardFormat::Junit => guarded.junit()?,
    };
    match &arguments.output {
        Some(path) => {
            let written = output::replace(path, text.as_bytes());
            // Standard error is then the only place left for the result.
            if written.is_err() {
                to_standard_error(&text::text(&guarded, &arguments), Allowed::Text);
            }
            written.context("cannot write the result")?;
        }
        None => to_standard_error(
            &text,
            match arguments.format {
                GuardFormat::Json => Allowed::Json,
                GuardFormat::Text | GuardFormat::Junit => Allowed::Text,
            },
        ),
    }
    Ok(if guarded.ok { status as u8 } else { BLOCKED })
}

fn runtimes(arguments: &Guard) -> Result<Option<Runtimes>> {
    if arguments.strict {
        return Ok(None);
    }
    let mut runtimes = Runtimes::builtin().clone();
    for path in &arguments.rules {
        let name = path.display().to_string();
        let text = String::from_utf8(kit_files::input::read(path)?)
            .with_context(|| format!("{name} is not UTF-8"))?;
        runtimes.add(&name, &text)?;
    }
    Ok(Some(runtimes))
}

/// Ignores write errors: the exit status carries the result.
fn to_standard_error(text: &str, allowed: Allowed) {
    let _ = kit_console::print_error(allowed, |out| out.write_all(text.as_bytes()));
}

struct Session {
    recorder: Recorder,
    watch: Watch,
    times: Times,
    /// Whether violations are printed to standard output as they are found.
    streams: bool,
    /// Number of violations that were printed.
    told: usize,
    ends_at_first: bool,
}

impl Session {
    fn guard_command(&mut self, command: &mut Command, duration: Option<Duration>) -> Result<i32> {
        let deadline = duration.map(|duration| Instant::now() + duration);
        let mut told: Option<Instant> = None;
        let status = loop {
            self.take_in()?;
            if let Some(status) = command.try_wait() {
                // SIGTERM from the guard is not a failure of the command.
                break if told.is_some() { 0 } else { status };
            }
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline)
                || self.has_seen_enough();
            match told {
                None if is_over => {
                    // SAFETY: the process is this one's child and has not been waited for.
                    unsafe { libc::kill(command.pid, libc::SIGTERM) };
                    told = Some(Instant::now());
                }
                Some(since) if since.elapsed() >= PATIENCE => {
                    // SAFETY: as above.
                    unsafe { libc::kill(command.pid, libc::SIGKILL) };
                }
                _ => {}
            }
        };
        let deadline = Instant::now() + run::LAST_SWITCH;
        while self.recorder.threads_alive(command.pid as u32)? > 0 && Instant::now() < deadline {
            self.take_in()?;
        }
        Ok(status)
    }

    fn guard_processes(
        &mut self,
        following: &mut Following,
        duration: Option<Duration>,
    ) -> Result<()> {
        let deadline = duration.map(|duration| Instant::now() + duration);
        let marks = self.streams.then(lines_of_input);
        if self.streams {
            self.print(&serde_json::json!({ "ready": true }))?;
        }
        while !STOP.load(Ordering::Relaxed)
            && deadline.is_none_or(|deadline| Instant::now() < deadline)
            && !self.has_seen_enough()
            && (following.follows() || self.guards_any(following.named())?)
        {
            following.wait(&mut self.recorder, Duration::ZERO)?;
            let mark = match marks.as_ref().map(|marks| marks.try_recv()) {
                Some(Ok(mark)) => Some(mark),
                Some(Err(TryRecvError::Disconnected)) => break,
                _ => None,
            };
            self.take_in()?;
            if let Some(mark) = mark {
                // Violations before the mark are reported before the answer to the mark.
                self.watch.end();
                self.tell()?;
                let now_ns = debox::session::monotonic_ns();
                self.print(&serde_json::json!({ "mark": mark, "now_ns": now_ns }))?;
            }
        }
        Ok(())
    }

    fn guards_any(&mut self, pids: &[u32]) -> Result<bool> {
        for pid in pids {
            if self.recorder.threads_alive(*pid)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_seen_enough(&self) -> bool {
        self.ends_at_first && !self.watch.violations.is_empty()
    }

    fn take_in(&mut self) -> Result<()> {
        let mut wait = POLL;
        loop {
            let watch = &mut self.watch;
            let has_more = self.recorder.poll(wait, &mut |call| {
                watch.see(call);
                Ok(())
            })?;
            self.tell()?;
            if !has_more {
                return Ok(());
            }
            wait = Duration::ZERO;
        }
    }

    /// Prints the violations found since the last call.
    fn tell(&mut self) -> Result<()> {
        let found = &self.watch.violations;
        for violation in &found[self.told.min(found.len())..] {
            if self.streams {
                let violation = self.times.violation(&self.watch, violation);
                self.print(&serde_json::json!({ "violation": violation }))?;
            }
        }
        self.told = found.len();
        Ok(())
    }

    fn print(&self, line: &serde_json::Value) -> Result<()> {
        let mut out = StandardOutput::open(Allowed::Json);
        match writeln!(out, "{line}").and_then(|()| out.finish()) {
            // The reader has closed the pipe: stop.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                STOP.store(true, Ordering::Relaxed);
                Ok(())
            }
            written => written.context("cannot write to standard output"),
        }
    }

    fn finish(self) -> Result<Guarded> {
        let Session {
            recorder,
            mut watch,
            times,
            ..
        } = self;
        let (_, missing) = recorder.finish(Outcome::default(), &mut |call| {
            watch.see(call);
            Ok(())
        })?;
        watch.end();
        Ok(Guarded::of(&watch, &times, &missing))
    }
}

/// Lines of standard input.
fn lines_of_input() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

//! Where the records go: into one file, into several in turn, or into memory until a signal or trigger.
//!
//! A full disk does not end a recording. Records that cannot be written wait in memory; those that do not
//! fit there are lost and counted. Writing resumes when the disk has room again.

mod files;

use std::time::{Duration, Instant};

use anyhow::Result;
use debox::history::Call;
use debox::predicate::Predicate;
use debox::report::Report;
use debox::{Missing, Recorder};
use debox_history::{Account, Flight, Gap, Limits, Lost, Meta, Writer, SCHEMA};
use jiff::tz::TimeZone;
use jiff::Timestamp;

use crate::options::Record;
use crate::units;
use files::Files;

/// How often the count of lost records is read: that reads counters of all probes.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long to wait after another file could not be created.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

pub struct Sink {
    files: Files,
    meta: Meta,
    target: Target,
    rotate_size: Option<u64>,
    rotate_time: Option<Duration>,
    asked: Instant,
    /// When another file last could not be created.
    refused: Option<Instant>,
    /// Whether the file could not be written at the last check.
    is_stuck: bool,
    /// Whether the file has reached the size limit for files.
    is_too_large: bool,
    /// Why the last file could not be written completely.
    failure: Option<String>,
    notes: Vec<String>,
    is_over: bool,
    rows: u64,
    bytes: u64,
    oldest_ns: u64,
    newest_ns: u64,
    flights: u32,
    filter: Option<Predicate>,
    taken_in: u64,
}

enum Target {
    File {
        writer: Box<Writer>,
        since: Instant,
    },
    Memory(Box<Flight>),
    /// Between two files, and after the last one.
    None,
}

/// What the files contain now.
pub struct Written {
    pub files: Vec<String>,
    pub rows: u64,
    pub bytes: u64,
    pub span_ns: u64,
    pub lost: Lost,
    /// Seconds of records for which the flight recorder had no memory.
    pub dropped_early: u64,
    /// How often the flight recorder was written to a file.
    pub flights: u32,
    /// Times in which records could not be written, in words.
    pub gaps: Vec<String>,
    /// Why records could not be written in the last of these times.
    pub failure: Option<String>,
}

impl Sink {
    /// Creates the file first, so that records are not lost because it cannot be written.
    pub fn open(arguments: &Record) -> Result<Sink> {
        let detail = arguments.session_options().detail;
        let meta = Meta {
            schema: SCHEMA.to_string(),
            writer: concat!("debox ", env!("CARGO_PKG_VERSION")).to_string(),
            host: host(),
            kernel: debox::kernel::release(),
            command: super::arguments::texts(&arguments.command),
            cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u32),
            detail: detail.names(),
            filter: arguments.filter.as_ref().map(|filter| filter.to_string()),
            stacks_from_ns: arguments.session_options().slow_ns,
            user_level: arguments.user_level,
            realtime_offset_ns: realtime_offset_ns(),
            started_ns: debox::session::monotonic_ns(),
            ..Meta::default()
        };
        let mut sink = Sink {
            files: Files::new(arguments),
            meta,
            target: Target::None,
            rotate_size: arguments.rotate_size,
            rotate_time: arguments.rotate_time,
            asked: Instant::now(),
            refused: None,
            is_stuck: false,
            is_too_large: false,
            failure: None,
            notes: Vec::new(),
            is_over: false,
            rows: 0,
            bytes: 0,
            oldest_ns: u64::MAX,
            newest_ns: 0,
            flights: 0,
            filter: arguments.filter.clone(),
            taken_in: 0,
        };
        sink.target = match arguments.flight {
            Some(keep) => {
                let memory = usize::try_from(arguments.flight_memory).unwrap_or(usize::MAX);
                let offset = sink.meta.realtime_offset_ns;
                Target::Memory(Box::new(Flight::new(keep, memory, offset)))
            }
            None => {
                let (file, path) = sink.files.first(&sink.meta)?;
                target(Writer::of_file(
                    file,
                    &path,
                    sink.meta.clone(),
                    Limits::default(),
                )?)
            }
        };
        Ok(sink)
    }

    /// Takes the messages about files since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Stops keeping records, because an error has ended the recording.
    pub fn take_no_more(&mut self) {
        self.is_over = true;
    }

    pub fn append(&mut self, call: Call) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        if self
            .filter
            .as_ref()
            .is_some_and(|filter| !filter.holds(&call))
        {
            self.meta.filtered_out += 1;
            return Ok(());
        }
        self.taken_in += 1;
        self.oldest_ns = self.oldest_ns.min(call.start_ns);
        self.newest_ns = self
            .newest_ns
            .max(call.start_ns.saturating_add(call.wall_ns));
        match &mut self.target {
            Target::File { writer, .. } => writer.append(&call),
            Target::Memory(flight) => flight.append(&call),
            Target::None => Ok(()),
        }
    }

    /// Number of records that passed the filter.
    pub fn records(&self) -> u64 {
        self.taken_in
    }

    /// Does what is due: reads the losses, writes buffered rows, begins another file.
    pub fn tick(&mut self, recorder: &Recorder) -> Result<()> {
        if self.asked.elapsed() >= ASK_EVERY {
            self.asked = Instant::now();
            self.take_account(recorder)?;
            if let Target::File { writer, .. } = &mut self.target {
                self.meta.copy_processes_to(writer.meta_mut());
            }
        }
        let full = match &mut self.target {
            Target::File { writer, since } => {
                let meta = writer.meta_mut();
                meta.lost = Lost {
                    unwritten: meta.lost.unwritten,
                    ..self.meta.lost
                };
                meta.filtered_out = self.meta.filtered_out;
                meta.deadlocks.clone_from(&self.meta.deadlocks);
                writer.tick()?;
                self.rotate_time.is_some_and(|time| since.elapsed() >= time)
                    || self
                        .rotate_size
                        .is_some_and(|size| writer.summary().bytes >= size)
            }
            Target::Memory(flight) => {
                flight.tick(debox::session::monotonic_ns());
                false
            }
            Target::None => false,
        };
        let is_too_large = self.look_at_disk();
        let may_try = self
            .refused
            .is_none_or(|refused| refused.elapsed() >= AGAIN_AFTER);
        // A file that cannot be written is not ended, because its last rows would be lost.
        if may_try && (is_too_large || (full && !self.is_stuck)) {
            self.next_file(is_too_large)?;
        }
        Ok(())
    }

    /// Reads the losses, the deadlocks and the names of processes so far.
    fn take_account(&mut self, recorder: &Recorder) -> Result<()> {
        let missing = recorder.missing()?;
        self.meta.lost = lost(&missing, &self.meta.lost);
        self.meta.deadlocks = recorder.deadlocks().to_vec();
        self.meta
            .set_processes(&recorder.processes(), missing.programs);
        self.meta.not_recorded = missing.left_out;
        Ok(())
    }

    /// Reports when the file cannot be written, and when it can be written again. Returns whether it has
    /// reached its maximum size.
    fn look_at_disk(&mut self) -> bool {
        let Target::File { writer, .. } = &self.target else {
            return false;
        };
        let was_stuck = std::mem::replace(&mut self.is_stuck, writer.is_stuck());
        let path = writer.path().display();
        if let Some(error) = writer.take_failure() {
            self.notes.push(format!(
                "cannot write to {path}: {error}; records wait in memory, and are lost when it is full"
            ));
            self.failure = Some(error.to_string());
            self.is_stuck = true;
            // If this is the file's first group, another file would not have room for it either.
            self.is_too_large =
                error.kind() == std::io::ErrorKind::FileTooLarge && writer.has_groups();
        }
        self.is_too_large &= self.is_stuck;
        if was_stuck && !self.is_stuck {
            let lost = match writer.gap() {
                Some(gap) => self.gap_in_words(&gap),
                None => "no record was lost".to_string(),
            };
            self.notes.push(format!("{path} is written again: {lost}"));
        }
        self.is_too_large
    }

    fn gap_in_words(&self, gap: &Gap) -> String {
        let at = |ns: u64| {
            let since_1970 = self.meta.realtime_offset_ns.saturating_add_unsigned(ns);
            let time = Timestamp::from_nanosecond(since_1970.into()).unwrap_or(Timestamp::MAX);
            let local = time.to_zoned(TimeZone::system());
            local.strftime("%H:%M:%S%.3f").to_string()
        };
        format!(
            "{} lost that could not be written, from {} to {}",
            units::counted(gap.records, "record"),
            at(gap.from_ns),
            at(gap.to_ns)
        )
    }

    /// Writes the flight recorder's content to a file; `None` if there is no flight recorder.
    pub fn write_flight(&mut self, recorder: &Recorder) -> Result<Option<Written>> {
        if matches!(self.target, Target::Memory(_)) {
            self.take_account(recorder)?;
        }
        let Target::Memory(flight) = &mut self.target else {
            return Ok(None);
        };
        let mut meta = self.meta.clone();
        meta.ended_ns = debox::session::monotonic_ns();
        let (path, summary) = self
            .files
            .write_flight(self.flights, &self.meta, |file, path| {
                flight.write(file, path, meta)
            })?;
        let (span_ns, dropped_early) = (flight.span_ns(), flight.dropped_early);
        self.flights += 1;
        Ok(Some(Written {
            files: vec![path.display().to_string()],
            rows: summary.rows,
            bytes: summary.bytes,
            span_ns,
            lost: self.meta.lost,
            dropped_early,
            flights: self.flights,
            gaps: Vec::new(),
            failure: None,
        }))
    }

    /// Ends the last file.
    pub fn finish(mut self, missing: &Missing, report: &Report) -> Result<Written> {
        self.meta.lost = lost(missing, &self.meta.lost);
        self.meta.account = (!self.is_over).then(|| Account::of(report));
        self.meta.deadlocks.clone_from(&report.deadlocks);
        self.meta.set_processes(&report.processes, missing.programs);
        self.meta.not_recorded.clone_from(&missing.left_out);
        let dropped_early = match &self.target {
            Target::Memory(flight) => flight.dropped_early,
            _ => 0,
        };
        self.failure = None;
        if let Target::File { writer, .. } = std::mem::replace(&mut self.target, Target::None) {
            self.end(*writer)?;
        }
        let gaps = self.meta.gaps.iter().map(|gap| self.gap_in_words(gap));
        Ok(Written {
            files: self.files.names(),
            rows: self.rows,
            bytes: self.bytes,
            span_ns: self.newest_ns.saturating_sub(self.oldest_ns),
            lost: self.meta.lost,
            dropped_early,
            flights: self.flights,
            gaps: gaps.collect(),
            failure: self.failure,
        })
    }

    /// Begins another file, for new records and with `takes_rest` for those that the last file could not
    /// take. If it cannot be created, the last file stays in use.
    fn next_file(&mut self, takes_rest: bool) -> Result<()> {
        let Target::File { writer, .. } = std::mem::replace(&mut self.target, Target::None) else {
            return Ok(());
        };
        let meta = Meta {
            part: self.meta.part + 1,
            rows_before: self.rows + writer.summary().rows,
            ..self.meta.clone()
        };
        let made = self.files.next(&meta).and_then(|(file, path)| {
            Writer::of_file(file, &path, meta, Limits::default()).inspect_err(|_| {
                self.files.forget_last();
            })
        });
        let mut next = match made {
            Ok(next) => next,
            Err(error) => {
                if self.refused.replace(Instant::now()).is_none() {
                    let path = writer.path().display();
                    self.notes
                        .push(format!("{error:#}; {path} is continued instead"));
                }
                self.target = target(*writer);
                return Ok(());
            }
        };
        self.refused = None;
        self.meta.part += 1;
        if takes_rest {
            let mut writer = *writer;
            self.meta.gaps.clone_from(&writer.meta_mut().gaps);
            self.meta.lost.unwritten = writer.meta_mut().lost.unwritten;
            let (summary, rest) = writer.leave()?;
            self.rows += summary.rows;
            self.bytes += summary.bytes;
            next.take_in(rest)?;
            (self.is_stuck, self.is_too_large) = (false, false);
            self.notes.push(format!(
                "the recording continues in {}",
                next.path().display()
            ));
        } else {
            self.end(*writer)?;
        }
        let meta = next.meta_mut();
        meta.rows_before = self.rows;
        meta.gaps.clone_from(&self.meta.gaps);
        meta.lost = self.meta.lost;
        meta.deadlocks.clone_from(&self.meta.deadlocks);
        self.target = target(next);
        let removed = self.files.remove_oldest();
        self.notes.extend(removed);
        Ok(())
    }

    fn end(&mut self, mut writer: Writer) -> Result<()> {
        let path = writer.path().display().to_string();
        let meta = writer.meta_mut();
        meta.lost = Lost {
            unwritten: meta.lost.unwritten,
            ..self.meta.lost
        };
        meta.filtered_out = self.meta.filtered_out;
        meta.deadlocks.clone_from(&self.meta.deadlocks);
        self.meta.copy_processes_to(meta);
        meta.ended_ns = debox::session::monotonic_ns();
        meta.complete = !self.is_over;
        meta.account.clone_from(&self.meta.account);
        let end = writer.end()?;
        self.rows += end.summary.rows;
        self.bytes += end.summary.bytes;
        self.meta.gaps = end.meta.gaps;
        self.meta.lost.unwritten = end.meta.lost.unwritten;
        self.failure = end
            .failure
            .map(|error| format!("cannot write to {path}: {error}"));
        Ok(())
    }
}

fn target(writer: Writer) -> Target {
    Target::File {
        writer: Box::new(writer),
        since: Instant::now(),
    }
}

/// Current losses of the probes, plus the records that could not be written.
fn lost(missing: &Missing, before: &Lost) -> Lost {
    Lost {
        records: missing.records,
        sleeps: missing.sleeps,
        stacks: missing.stacks,
        threads: missing.threads,
        probe_misses: missing.probe_misses,
        unwritten: before.unwritten,
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

/// Offset from the probes' clock to the time of day.
fn realtime_offset_ns() -> i64 {
    let before = debox::session::monotonic_ns() as i64;
    let now = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0);
    let after = debox::session::monotonic_ns() as i64;
    now - (before + (after - before) / 2)
}

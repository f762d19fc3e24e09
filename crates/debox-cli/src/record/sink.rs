//! Where the records go: into a file, into several in turn, or into memory until told.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use debox::history::Call;
use debox::predicate::Predicate;
use debox::{Missing, Recorder};
use debox_history::{Flight, Limits, Lost, Meta, Writer, SCHEMA};

use crate::options::Record;

/// How often it is asked what was lost: that reads counters of all probes.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub struct Sink {
    pattern: PathBuf,
    meta: Meta,
    target: Target,
    rotate_size: Option<u64>,
    rotate_time: Option<Duration>,
    keep_files: Option<usize>,
    asked: Instant,
    files: Vec<PathBuf>,
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
    /// Between two files, and after the last.
    None,
}

/// What is in the files now.
pub struct Written {
    pub files: Vec<String>,
    pub rows: u64,
    pub bytes: u64,
    pub span_ns: u64,
    pub lost: Lost,
    /// Seconds that a flight recorder had no memory for.
    pub dropped_early: u64,
    /// How often the flight recorder was written.
    pub flights: u32,
}

impl Sink {
    /// Makes the file first: records must not be lost because there is nowhere to put them.
    pub fn open(arguments: &Record) -> Result<Sink> {
        let detail = arguments.session_options().detail;
        let meta = Meta {
            schema: SCHEMA.to_string(),
            writer: concat!("debox ", env!("CARGO_PKG_VERSION")).to_string(),
            host: host(),
            kernel: debox::kernel::release(),
            command: super::words(&arguments.command),
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
            pattern: pattern(arguments),
            meta,
            target: Target::None,
            rotate_size: arguments.rotate_size,
            rotate_time: arguments.rotate_time,
            keep_files: arguments.keep_files.map(|files| files as usize),
            asked: Instant::now(),
            files: Vec::new(),
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
            None => sink.next_file()?,
        };
        Ok(sink)
    }

    pub fn append(&mut self, call: Call) -> Result<()> {
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

    /// So many records came and passed the filter.
    pub fn records(&self) -> u64 {
        self.taken_in
    }

    /// Writes what it is time for.
    pub fn tick(&mut self, recorder: &Recorder) -> Result<()> {
        if self.asked.elapsed() >= ASK_EVERY {
            self.asked = Instant::now();
            self.meta.lost = lost(&recorder.missing()?);
        }
        let full = match &mut self.target {
            Target::File { writer, since } => {
                writer.meta_mut().lost = self.meta.lost;
                writer.meta_mut().filtered_out = self.meta.filtered_out;
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
        if full {
            self.close_file()?;
            self.meta.part += 1;
            self.target = self.next_file()?;
            self.remove_oldest()?;
        }
        Ok(())
    }

    /// Writes what the flight recorder remembers; `None` if there is none.
    pub fn write_flight(&mut self, recorder: &Recorder) -> Result<Option<Written>> {
        let Target::Memory(flight) = &mut self.target else {
            return Ok(None);
        };
        self.meta.lost = lost(&recorder.missing()?);
        let number = (self.flights > 0).then_some(self.flights);
        let path = expand(&self.pattern, &self.meta, self.flights);
        let path = match number {
            Some(number) if path == expand(&self.pattern, &self.meta, 0) => numbered(&path, number),
            _ => path,
        };
        make_room(&path)?;
        let mut meta = self.meta.clone();
        meta.ended_ns = debox::session::monotonic_ns();
        let summary = flight.write(&path, meta)?;
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
        }))
    }

    /// Ends the last file.
    pub fn finish(mut self, missing: &Missing) -> Result<Written> {
        self.meta.lost = lost(missing);
        let dropped_early = match &self.target {
            Target::Memory(flight) => flight.dropped_early,
            _ => 0,
        };
        self.close_file()?;
        Ok(Written {
            files: self
                .files
                .iter()
                .map(|file| file.display().to_string())
                .collect(),
            rows: self.rows,
            bytes: self.bytes,
            span_ns: self.newest_ns.saturating_sub(self.oldest_ns),
            lost: self.meta.lost,
            dropped_early,
            flights: self.flights,
        })
    }

    fn next_file(&mut self) -> Result<Target> {
        let mut path = expand(&self.pattern, &self.meta, self.meta.part);
        if self.files.contains(&path) {
            path = numbered(&path, self.meta.part);
        }
        make_room(&path)?;
        let mut meta = self.meta.clone();
        meta.rows_before = self.rows;
        let writer = Writer::create(&path, meta, Limits::default())?;
        self.files.push(path);
        Ok(Target::File {
            writer: Box::new(writer),
            since: Instant::now(),
        })
    }

    fn close_file(&mut self) -> Result<()> {
        if let Target::File { mut writer, .. } = std::mem::replace(&mut self.target, Target::None) {
            let meta = writer.meta_mut();
            meta.lost = self.meta.lost;
            meta.filtered_out = self.meta.filtered_out;
            meta.ended_ns = debox::session::monotonic_ns();
            meta.complete = true;
            let summary = writer.finish()?;
            self.rows += summary.rows;
            self.bytes += summary.bytes;
        }
        Ok(())
    }

    fn remove_oldest(&mut self) -> Result<()> {
        let Some(most) = self.keep_files else {
            return Ok(());
        };
        while self.files.len() > most {
            let oldest = self.files.remove(0);
            std::fs::remove_file(&oldest)
                .with_context(|| format!("cannot remove {}", oldest.display()))?;
        }
        Ok(())
    }
}

fn lost(missing: &Missing) -> Lost {
    Lost {
        records: missing.records,
        sleeps: missing.sleeps,
        stacks: missing.stacks,
        threads: missing.threads,
        probe_misses: missing.probe_misses,
    }
}

/// The file's name, with a place for the number of each file where there are several.
fn pattern(arguments: &Record) -> PathBuf {
    let output = &arguments.output;
    let rotates = arguments.rotate_size.is_some() || arguments.rotate_time.is_some();
    if !rotates || output.to_string_lossy().contains("{part}") {
        return output.clone();
    }
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let end = output.extension().unwrap_or_default().to_string_lossy();
    output.with_file_name(format!("{stem}-{{part}}.{end}"))
}

fn expand(pattern: &Path, meta: &Meta, part: u32) -> PathBuf {
    let hour = chrono::Utc::now().format("%Y-%m-%dT%H").to_string();
    let text = pattern.to_string_lossy();
    let text = text
        .replace("{host}", &meta.host)
        .replace("{hour}", &hour)
        .replace("{part}", &format!("{part:04}"));
    PathBuf::from(text)
}

/// `last.parquet` becomes `last-1.parquet`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let end = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{end}"))
}

fn make_room(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the directory {}", parent.display())),
        _ => Ok(()),
    }
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

/// What to add to the probes' clock to have the time of day.
fn realtime_offset_ns() -> i64 {
    let before = debox::session::monotonic_ns() as i64;
    let now = chrono::Utc::now().timestamp_nanos_opt().unwrap_or(0);
    let after = debox::session::monotonic_ns() as i64;
    now - (before + (after - before) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_numbers() {
        assert_eq!(
            numbered(Path::new("/a/last.parquet"), 2),
            Path::new("/a/last-2.parquet")
        );
    }
}

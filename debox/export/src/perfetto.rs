//! A trace for Perfetto: a track for each thread, a slice for each call, nested slices for its
//! sleeps and the waits for a CPU that follow them, and an arrow from the waker to each sleep's end.

mod arguments;
mod interned;
mod messages;
#[cfg(test)]
mod tests;
mod threads;

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use debox_history::{File, History};
use debox_model::history::{Call, Sleep, Text};
use prost::Message;

use self::arguments::Arguments;
use self::interned::Interned;
use self::messages::{
    Clock, ClockSnapshot, DebugAnnotation, ProcessDescriptor, SystemInfo, ThreadDescriptor,
    Trace as Whole, TraceEventKind, TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent,
    Utsname, CLEARED, CLOCK_MONOTONIC, CLOCK_REALTIME, NEEDS_STATE,
};
use self::threads::Threads;
use crate::exporter::{losses, realtime, Exporter, CANNOT_WRITE};

/// All packets are in one sequence, so that they share their texts.
const SEQUENCE: u32 = 1;

/// The first track numbers of processes and of threads, far enough apart not to collide.
const PROCESS_TRACKS: u64 = 1 << 40;
const THREAD_TRACKS: u64 = 2 << 40;
const LOST_TRACK: u64 = 1 << 32;

/// The latest time that readers accept.
const TIME_MAX: u64 = i64::MAX as u64;

pub struct Trace<'a> {
    threads: Threads,
    interned: Interned,
    /// Whether times are times of day: only these are comparable between several recordings.
    is_realtime: bool,
    /// Whether the next packet begins with no interned texts.
    begins_anew: bool,
    flows: u64,
    moved: u64,
    run_queue: Text,
    wakes: Text,
    bytes: Vec<u8>,
    out: BufWriter<&'a mut dyn Write>,
}

impl<'a> Trace<'a> {
    pub fn begin(history: &History, out: &'a mut dyn Write) -> Result<Trace<'a>> {
        let metas = || history.files.iter().map(|file| &file.meta);
        let hosts = || metas().map(|meta| &meta.host);
        if let Some(other) = hosts().find(|host| Some(*host) != hosts().next()) {
            anyhow::bail!(
                "the files are of several hosts ({} and {other}), whose processes have the same numbers: \
                 export each host by itself",
                hosts().next().map_or("", |host| host)
            );
        }
        let offset = metas().next().map_or(0, |meta| meta.realtime_offset_ns);
        let mut trace = Trace {
            threads: Threads::of(history)?,
            interned: Interned::default(),
            is_realtime: metas().any(|meta| meta.realtime_offset_ns != offset),
            begins_anew: true,
            flows: 0,
            moved: 0,
            run_queue: "run queue".into(),
            wakes: "wakes".into(),
            bytes: Vec::new(),
            out: BufWriter::new(out),
        };
        trace.clocks(history)?;
        trace.lost(history)?;
        Ok(trace)
    }

    fn time(&self, file: &File, ns: u64) -> u64 {
        if self.is_realtime {
            let ns = realtime(file, ns).clamp(0, TIME_MAX.into());
            u64::try_from(ns).unwrap_or(0)
        } else {
            ns.min(TIME_MAX)
        }
    }

    fn clock(&self) -> u32 {
        match self.is_realtime {
            true => CLOCK_REALTIME,
            false => CLOCK_MONOTONIC,
        }
    }

    fn clocks(&mut self, history: &History) -> Result<()> {
        let Some(file) = history.files.first() else {
            return Ok(());
        };
        let meta = &file.meta;
        let at = |id, timestamp| Clock {
            clock_id: Some(id),
            timestamp: Some(timestamp),
        };
        let of_day = realtime(file, meta.started_ns).clamp(0, TIME_MAX.into());
        let of_day = u64::try_from(of_day).unwrap_or(0);
        let clocks = vec![
            at(CLOCK_MONOTONIC, meta.started_ns.min(TIME_MAX)),
            at(CLOCK_REALTIME, of_day),
        ];
        let kernel = meta.kernel.clone();
        self.write(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks,
                primary_trace_clock: Some(self.clock()),
            }),
            ..TracePacket::default()
        })?;
        self.write(TracePacket {
            system_info: Some(SystemInfo {
                utsname: Some(Utsname {
                    sysname: Some("Linux".to_string()),
                    release: Some(kernel),
                    // The only architecture that DeBox supports.
                    machine: Some("x86_64".to_string()),
                }),
            }),
            ..TracePacket::default()
        })
    }

    /// Writes what was lost into the trace, where a reader will look for it.
    fn lost(&mut self, history: &History) -> Result<()> {
        let mut is_described = false;
        for file in &history.files {
            let Some(losses) = losses(file) else { continue };
            if !std::mem::replace(&mut is_described, true) {
                self.describe(TrackDescriptor {
                    uuid: Some(LOST_TRACK),
                    name: Some("debox: what is missing".to_string()),
                    ..TrackDescriptor::default()
                })?;
            }
            let at = self.time(file, file.meta.started_ns);
            self.event(
                LOST_TRACK,
                at,
                TraceEventKind::Instant,
                |interned, event| {
                    event.name_iid = Some(interned.name(&losses.into()));
                },
            )?;
        }
        Ok(())
    }

    fn write(&mut self, mut packet: TracePacket) -> Result<()> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        self.bytes.clear();
        let whole = Whole {
            packet: vec![packet],
        };
        whole.encode(&mut self.bytes).context("out of memory")?;
        self.out.write_all(&self.bytes).context(CANNOT_WRITE)
    }

    fn describe(&mut self, track: TrackDescriptor) -> Result<()> {
        self.write(TracePacket {
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    fn event(
        &mut self,
        track: u64,
        at: u64,
        kind: TraceEventKind,
        fill: impl FnOnce(&mut Interned, &mut TrackEvent),
    ) -> Result<()> {
        if self.interned.is_full() {
            self.interned = Interned::default();
            self.begins_anew = true;
        }
        let begins = std::mem::take(&mut self.begins_anew);
        let mut event = TrackEvent {
            r#type: Some(kind as i32),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        fill(&mut self.interned, &mut event);
        let packet = TracePacket {
            timestamp: Some(at),
            track_event: Some(event),
            interned_data: self.interned.take_new(),
            sequence_flags: Some(if begins {
                CLEARED | NEEDS_STATE
            } else {
                NEEDS_STATE
            }),
            trace_packet_defaults: begins.then(|| TracePacketDefaults {
                timestamp_clock_id: Some(self.clock()),
            }),
            ..TracePacket::default()
        };
        self.write(packet)
    }

    fn begin_slice(
        &mut self,
        track: u64,
        at: u64,
        category: &'static str,
        name: &Text,
        fill: impl FnOnce(&mut Arguments),
    ) -> Result<()> {
        self.event(track, at, TraceEventKind::Begin, |interned, event| {
            event.category_iids.push(interned.category(category));
            event.name_iid = Some(interned.name(name));
            event.debug_annotations = arguments(interned, fill);
        })
    }

    fn end_slice(&mut self, track: u64, at: u64) -> Result<()> {
        self.event(track, at, TraceEventKind::End, |_, _| {})
    }

    /// The thread's track, described when it is first needed.
    fn track(&mut self, thread: usize) -> Result<u64> {
        let track = THREAD_TRACKS + thread as u64;
        let known = &mut self.threads.all[thread];
        if std::mem::replace(&mut known.is_described, true) {
            return Ok(track);
        }
        let (pid, tid, name) = (known.pid, known.tid, known.name.clone());
        let process = PROCESS_TRACKS + u64::from(pid);
        let process_name = self.threads.process_name(pid, thread);
        let cmdline = self.threads.command_line(pid);
        if self.threads.is_first_of(pid) {
            self.describe(TrackDescriptor {
                uuid: Some(process),
                process: Some(ProcessDescriptor {
                    pid: Some(pid as i32),
                    process_name: Some(process_name),
                    cmdline,
                }),
                ..TrackDescriptor::default()
            })?;
        }
        self.describe(TrackDescriptor {
            uuid: Some(track),
            parent_uuid: Some(process),
            thread: Some(ThreadDescriptor {
                pid: Some(pid as i32),
                tid: Some(tid as i32),
                thread_name: Some(name),
            }),
            ..TrackDescriptor::default()
        })?;
        Ok(track)
    }

    /// Writes the slices of a sleep, from `cursor` to `end` at most, and returns where they end.
    fn sleep(&mut self, at: &At, sleep: &Sleep, cursor: u64, end: u64) -> Result<u64> {
        let wanted = [
            at.time(self, sleep.begin_ns),
            at.time(self, sleep.begin_ns.saturating_add(sleep.blocked_ns)),
            at.time(
                self,
                sleep
                    .begin_ns
                    .saturating_add(sleep.blocked_ns)
                    .saturating_add(sleep.runqueue_ns),
            ),
        ];
        let begin = wanted[0].clamp(cursor, end);
        let woken = wanted[1].clamp(begin, end);
        let ran = wanted[2].clamp(woken, end);
        self.moved += u64::from([begin, woken, ran] != wanted);
        self.begin_slice(at.track, begin, "sleep", &sleep.label, |arguments| {
            arguments.sleep(sleep)
        })?;
        self.end_slice(at.track, woken)?;
        let flow = self.waker(at, sleep, woken)?;
        if flow.is_some() || sleep.runqueue_ns > 0 {
            let run_queue = self.run_queue.clone();
            self.event(at.track, woken, TraceEventKind::Begin, |interned, event| {
                event.category_iids.push(interned.category("runqueue"));
                event.name_iid = Some(interned.name(&run_queue));
                event.terminating_flow_ids.extend(flow);
                event.debug_annotations = arguments(interned, |arguments| {
                    arguments.number("runqueue_ns", sleep.runqueue_ns)
                });
            })?;
            self.end_slice(at.track, ran)?;
        }
        Ok(ran)
    }

    /// Writes an instant on the track of a waker that was recorded, inside whichever slice is open
    /// at that time; the arrow begins there.
    fn waker(&mut self, at: &At, sleep: &Sleep, woken: u64) -> Result<Option<u64>> {
        let (Some(tid), "task") = (sleep.waker_tid, &*sleep.waker_kind) else {
            return Ok(None);
        };
        let moment = realtime(at.file, sleep.begin_ns.saturating_add(sleep.blocked_ns));
        let moment = i64::try_from(moment).unwrap_or(i64::MAX);
        let Some(waker) = self.threads.with_tid(tid, moment) else {
            return Ok(None);
        };
        if waker == at.thread {
            return Ok(None);
        }
        let track = self.track(waker)?;
        self.flows += 1;
        let (flow, wakes) = (self.flows, self.wakes.clone());
        let woken_thread = &self.threads.all[at.thread];
        let (tid, name): (u32, Text) = (woken_thread.tid, woken_thread.name.as_str().into());
        self.event(track, woken, TraceEventKind::Instant, |interned, event| {
            event.category_iids.push(interned.category("waking"));
            event.name_iid = Some(interned.name(&wakes));
            event.flow_ids.push(flow);
            event.debug_annotations = arguments(interned, |arguments| {
                arguments.number("tid", tid.into());
                arguments.text("comm", Some(&name));
                arguments.text("from", Some(&sleep.label));
            });
        })?;
        Ok(Some(flow))
    }
}

/// Where a call is drawn.
struct At<'a> {
    file: &'a File,
    thread: usize,
    track: u64,
}

impl At<'_> {
    fn time(&self, trace: &Trace, ns: u64) -> u64 {
        trace.time(self.file, ns)
    }
}

fn arguments(interned: &mut Interned, fill: impl FnOnce(&mut Arguments)) -> Vec<DebugAnnotation> {
    let mut arguments = Arguments::new(interned);
    fill(&mut arguments);
    arguments.take()
}

impl Exporter for Trace<'_> {
    fn call(&mut self, file: &File, call: &Call) -> Result<()> {
        let from_ns = i64::try_from(realtime(file, call.start_ns)).unwrap_or(i64::MAX);
        let thread = self.threads.index((call.pid, call.tid), from_ns);
        let at = At {
            file,
            thread,
            track: self.track(thread)?,
        };
        let wanted = [
            self.time(file, call.start_ns),
            self.time(file, call.start_ns.saturating_add(call.wall_ns)),
        ];
        // Slices of a thread must not overlap: readers would show them as nested.
        let begin = wanted[0].max(self.threads.all[thread].end_ns);
        let end = wanted[1].max(begin);
        self.moved += u64::from([begin, end] != wanted);
        let category = if call.number < 0 { "user" } else { "syscall" };
        self.begin_slice(at.track, begin, category, &call.name, |arguments| {
            arguments.call(call)
        })?;
        let mut cursor = begin;
        for sleep in &call.sleeps {
            cursor = self.sleep(&at, sleep, cursor, end)?;
        }
        self.end_slice(at.track, end)?;
        self.threads.all[thread].end_ns = end;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.out.flush().context(CANNOT_WRITE)?;
        Ok(self.moved)
    }
}

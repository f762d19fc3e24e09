//! One line of JSON for each call, with the names of the columns in `debox/docs/history.md`.

use std::borrow::Cow;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use debox_history::{File, History, ProcessNames};
use debox_model::history::{Call, Sleep};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::exporter::{realtime, Exporter, CANNOT_WRITE};

pub struct Lines<'a> {
    names_host: bool,
    processes: ProcessNames,
    out: BufWriter<&'a mut dyn Write>,
}

impl<'a> Lines<'a> {
    pub fn new(history: &History, out: &'a mut dyn Write) -> Lines<'a> {
        let mut hosts = history.files.iter().map(|file| &file.meta.host);
        let first = hosts.next();
        Lines {
            names_host: hosts.any(|host| Some(host) != first),
            processes: ProcessNames::of(history),
            out: BufWriter::new(out),
        }
    }
}

impl Exporter for Lines<'_> {
    fn call(&mut self, file: &File, call: &Call) -> Result<()> {
        let host = self.names_host.then_some(&*file.meta.host);
        let process = self.processes.at(&file.meta.host, call.pid, call.start_ns);
        let mut row = Row::of(host, realtime(file, call.start_ns), call);
        row.process = process.map(|process| &**process);
        serde_json::to_writer(&mut self.out, &row).context(CANNOT_WRITE)?;
        self.out.write_all(b"\n").context(CANNOT_WRITE)
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.out.flush().context(CANNOT_WRITE)?;
        Ok(0)
    }
}

#[derive(Serialize)]
struct Row<'a> {
    /// Only in exports of several hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    /// Nanoseconds since 1970: most readers would reduce a text to microseconds.
    time: i128,
    pid: u32,
    tid: u32,
    comm: &'a str,
    /// The process's title or command line, if the recording has it.
    process: Option<&'a str>,
    call: &'a str,
    number: i32,
    ia32: bool,
    ordinal: u64,
    ret: Option<i64>,
    error: Option<Cow<'static, str>>,
    arg0: u64,
    arg1: u64,
    arg2: u64,
    wall_ns: u64,
    cpu_ns: u64,
    blocked_ns: u64,
    runqueue_ns: u64,
    preempted_ns: u64,
    irq_ns: Option<u64>,
    spin_ns: u64,
    faults_minor: u32,
    faults_major: u32,
    read_bytes: Option<u64>,
    write_bytes: Option<u64>,
    restarted: bool,
    partial: bool,
    caller: Option<&'a str>,
    stack: Option<&'a str>,
    #[serde(serialize_with = "sleeps")]
    sleeps: &'a Call,
    sleeps_left_out: u32,
    in_flight: bool,
    user_ns: Option<u64>,
    user_away_ns: Option<u64>,
    user_calls_ns: Option<u64>,
    throttled_ns: Option<u64>,
    cpu_owner: Option<&'a str>,
    cpu_owner_pid: Option<u32>,
    cpu_owner_kind: Option<&'a str>,
    cpu_owner_ns: Option<u64>,
}

impl<'a> Row<'a> {
    fn of(host: Option<&'a str>, time: i128, call: &'a Call) -> Row<'a> {
        let wait = call.cpu_wait.as_ref();
        let owner = wait.and_then(|wait| wait.owner.as_ref());
        Row {
            host,
            time,
            pid: call.pid,
            tid: call.tid,
            comm: &call.comm,
            process: None,
            call: &call.name,
            number: call.number,
            ia32: call.ia32,
            ordinal: call.ordinal,
            ret: (!call.in_flight).then_some(call.ret),
            error: call.error(),
            arg0: call.args[0],
            arg1: call.args[1],
            arg2: call.args[2],
            wall_ns: call.wall_ns,
            cpu_ns: call.budget.cpu_ns,
            blocked_ns: call.budget.blocked_ns,
            runqueue_ns: call.budget.runqueue_ns,
            preempted_ns: call.budget.preempted_ns,
            irq_ns: call.budget.irq_ns,
            spin_ns: call.spin_ns,
            faults_minor: call.faults_minor,
            faults_major: call.faults_major,
            read_bytes: call.read_bytes,
            write_bytes: call.write_bytes,
            restarted: call.restarted,
            partial: call.partial,
            caller: call.caller.as_deref(),
            stack: call.stack.as_deref(),
            sleeps: call,
            sleeps_left_out: call.sleeps_left_out,
            in_flight: call.in_flight,
            user_ns: call.user.map(|user| user.wall_ns),
            user_away_ns: call.user.map(|user| user.away_ns),
            user_calls_ns: call.user.map(|user| user.calls_ns),
            throttled_ns: wait.map(|wait| wait.throttled_ns),
            cpu_owner: owner.and_then(|owner| owner.comm.as_deref()),
            cpu_owner_pid: owner.and_then(|owner| owner.pid),
            cpu_owner_kind: owner.map(|owner| &*owner.kind),
            cpu_owner_ns: owner.map(|owner| owner.ns),
        }
    }
}

#[derive(Serialize)]
struct SleepRow<'a> {
    begin_ns: u64,
    blocked_ns: u64,
    runqueue_ns: u64,
    label: &'a str,
    class: &'a str,
    site: &'a str,
    stack: Option<&'a str>,
    resource_kind: Option<&'a str>,
    resource: Option<&'a str>,
    waker_kind: &'a str,
    waker_tid: Option<u32>,
    waker_comm: Option<&'a str>,
    owner_certainty: Option<&'a str>,
    owner_tid: Option<u32>,
    owner_comm: Option<&'a str>,
    owner_doing: Option<&'a str>,
    waiters_entry: Option<u32>,
    waiters_exit: Option<u32>,
}

impl<'a> SleepRow<'a> {
    fn of(call: &Call, sleep: &'a Sleep) -> SleepRow<'a> {
        SleepRow {
            begin_ns: sleep.begin_ns.saturating_sub(call.start_ns),
            blocked_ns: sleep.blocked_ns,
            runqueue_ns: sleep.runqueue_ns,
            label: &sleep.label,
            class: &sleep.class,
            site: &sleep.site,
            stack: sleep.stack.as_deref(),
            resource_kind: sleep.resource_kind.as_deref(),
            resource: sleep.resource.as_deref(),
            waker_kind: &sleep.waker_kind,
            waker_tid: sleep.waker_tid,
            waker_comm: sleep.waker_comm.as_deref(),
            owner_certainty: sleep.owner_certainty.as_deref(),
            owner_tid: sleep.owner_tid,
            owner_comm: sleep.owner_comm.as_deref(),
            owner_doing: sleep.owner_doing.as_deref(),
            waiters_entry: sleep.waiters_entry,
            waiters_exit: sleep.waiters_exit,
        }
    }
}

fn sleeps<S: Serializer>(call: &&Call, serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(call.sleeps.len()))?;
    for sleep in &call.sleeps {
        list.serialize_element(&SleepRow::of(call, sleep))?;
    }
    list.end()
}

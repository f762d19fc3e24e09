// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened since the last look, as it is sent to the client whose threads it is about.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::rows::{CpuKey, CpuRow, Named, Owner, Wait};
use super::{converted, Numbers, Places, Table};
use crate::broker::probe_data::{fields_of, Life};
use crate::broker::protocol::{self, FrameText};
use crate::broker::record_data::OpenCall;
use crate::live_tables::LiveTables;
use crate::tables::types;

fields_of! {
    KeyFields of live_key {
        stack: u64,
        call: u32,
        lock_flags: u32,
        tid: u32,
        tgid: u32,
        owner: u32,
        certainty: u32,
        events_at: u32,
    }
}

fields_of! {
    RowFields of live_row {
        count: u64,
        blocked_ns: u64,
        max_ns: u64,
        ownable: u32,
        waker_kind: u32,
        waker_tid: u32,
        waker_comm: [i8; 16],
        comm: [i8; 16],
    }
}

#[derive(Serialize, Deserialize)]
struct LookWire {
    rows: Vec<((KeyFields, Named), (RowFields, Owner))>,
    living: Vec<Life>,
    waits: Table<u32, Wait>,
    cpus: Table<CpuKey, CpuRow>,
    lost: (u64, u64),
    lost_threads: u64,
}

/// Encodes what a client may know of it. Threads that have ended are sent as events.
pub fn encode(tables: &LiveTables) -> Vec<u8> {
    let rows = tables.rows.iter().map(|(key, row)| {
        let key = (key.into(), Named::of(key.resource));
        (key, (row.into(), (&row.owner).into()))
    });
    protocol::encode(&LookWire {
        rows: rows.collect(),
        living: tables.living.iter().map(Life::from).collect(),
        waits: tables
            .waits
            .iter()
            .map(|(at, wait)| (*at, wait.into()))
            .collect(),
        cpus: converted(&tables.cpus),
        lost: tables.lost,
        lost_threads: tables.lost_threads,
    })
}

/// `None` if the bytes are not exactly one look.
pub fn decode(bytes: &[u8]) -> Option<LiveTables> {
    let wire: LookWire = protocol::decode(bytes)?;
    let rows = wire.rows.iter().map(|((key, resource), (row, owner))| {
        let key = types::live_key {
            resource: resource.into(),
            ..key.into()
        };
        let row = types::live_row {
            owner: owner.into(),
            ..row.into()
        };
        (key, row)
    });
    let mut tables = LiveTables {
        rows: rows.collect(),
        living: wire.living.iter().map(types::thread::from).collect(),
        ended: Vec::new(),
        waits: wire
            .waits
            .iter()
            .map(|(at, wait)| (*at, wait.into()))
            .collect(),
        cpus: converted(&wire.cpus),
        lost: wire.lost,
        lost_threads: wire.lost_threads,
    };
    for thread in &mut tables.living {
        // It is sent with the wait.
        let wait = tables.waits.get(&thread.index);
        thread.lock_flags = wait.map_or(0, |wait| wait.lock_flags);
    }
    Some(tables)
}

/// The calls that threads are asleep in.
#[derive(Serialize, Deserialize)]
struct TasksWire {
    tasks: Vec<(u32, OpenCall, Vec<u64>)>,
    /// The numbers that replace addresses in the stacks above, and their places.
    frames: Vec<(u64, FrameText)>,
}

/// Encodes the calls of sleeping tasks, with their stacks, by index in the table of threads.
pub fn encode_tasks(tasks: &HashMap<u32, types::in_flight>, places: &Places) -> Vec<u8> {
    let mut numbers = Numbers {
        places,
        numbers: HashMap::new(),
        frames: Vec::new(),
    };
    let tasks = tasks.iter().map(|(at, task)| {
        let depth = (task.depth as usize).min(task.frames.len());
        (*at, task.into(), numbers.of(&task.frames[..depth]))
    });
    let tasks = tasks.collect();
    let frames = numbers.frames;
    protocol::encode(&TasksWire { tasks, frames })
}

/// A task by its index in the table of threads, and the places of its stack.
pub type Asleep = (u32, types::in_flight, Vec<FrameText>);

/// `None` if the bytes are not exactly such a list.
pub fn decode_tasks(bytes: &[u8]) -> Option<Vec<Asleep>> {
    let wire: TasksWire = protocol::decode(bytes)?;
    let places: HashMap<u64, FrameText> = wire.frames.into_iter().collect();
    let tasks = wire.tasks.iter().map(|(at, call, stack)| {
        let stack = stack.iter().filter_map(|number| places.get(number));
        (*at, call.into(), stack.cloned().collect())
    });
    Some(tasks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables;

    const ADDRESS: u64 = 0xffff_8881_2345_6780;

    #[test]
    fn a_look_has_no_addresses_and_all_that_is_named() {
        let mut key = types::live_key {
            stack: 1,
            tid: 2,
            owner: 3,
            ..types::live_key::default()
        };
        (key.resource.kind, key.resource.id) = (tables::RESOURCE_LOCK, ADDRESS);
        let mut row = types::live_row {
            count: 4,
            max_ns: 5,
            ..types::live_row::default()
        };
        row.owner.tid = 6;
        let thread = types::thread {
            task: ADDRESS,
            resource: ADDRESS,
            index: 7,
            tid: 8,
            ..types::thread::default()
        };
        let sent = LiveTables {
            rows: vec![(key, row)],
            living: vec![thread],
            waits: HashMap::from([(
                7,
                tables::OpenWait {
                    lock_flags: 9,
                    ..Default::default()
                },
            )]),
            lost: (10, 11),
            lost_threads: 12,
            ..LiveTables::default()
        };
        let bytes = encode(&sent);
        let as_number = protocol::encode(&ADDRESS);
        assert!(!bytes.windows(as_number.len()).any(|some| some == as_number));
        let got = decode(&bytes).unwrap();
        let (key, row) = &got.rows[0];
        assert_eq!(
            (key.stack, key.tid, key.owner, key.resource.id),
            (1, 2, 3, 0)
        );
        assert_eq!((row.count, row.max_ns, row.owner.tid), (4, 5, 6));
        let thread = &got.living[0];
        assert_eq!((thread.tid, thread.lock_flags, thread.task), (8, 9, 0));
        assert_eq!((got.lost, got.lost_threads), ((10, 11), 12));
        assert!(decode(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn stacks_of_sleepers_are_places() {
        let mut task = types::in_flight {
            depth: 2,
            ordinal: 3,
            ..types::in_flight::default()
        };
        (task.frames[0], task.frames[1]) = (ADDRESS, ADDRESS + 1);
        let text = FrameText {
            function: "do_wait".to_string(),
            offset: 4,
            line: None,
        };
        let places = Places::from([(ADDRESS, text.clone())]);
        let bytes = encode_tasks(&HashMap::from([(5, task)]), &places);
        let as_number = protocol::encode(&ADDRESS);
        assert!(!bytes.windows(as_number.len()).any(|some| some == as_number));
        let got = decode_tasks(&bytes).unwrap();
        let (index, task, stack) = &got[0];
        assert_eq!((*index, task.ordinal, stack.len()), (5, 3, 2));
        assert_eq!(stack[0], text);
        assert_eq!(task.frames[0], 0);
    }
}

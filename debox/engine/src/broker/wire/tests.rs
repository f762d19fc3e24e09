// SPDX-License-Identifier: MIT OR Apache-2.0
//! What passes to a client, and what does not.

use proptest::prelude::*;

use super::*;
use crate::tables;

const ADDRESS: u64 = 0xffff_8881_2345_6780;
const STACK: u64 = 77;

/// A snapshot with a kernel address wherever there can be one.
fn snapshot() -> Snapshot {
    let thread = types::thread {
        task: ADDRESS,
        resource: ADDRESS,
        spin_lock: ADDRESS,
        calls: 7,
        ..types::thread::default()
    };
    let mut lock = types::resource_key::default();
    (lock.resource.kind, lock.resource.id) = (tables::RESOURCE_LOCK, ADDRESS);
    let mut ended_at = types::resource_row::default();
    ended_at.ends.peer_tgid = 4321;
    ended_at.ends.peer_comm[0] = b'a' as _;
    let sleep = types::sleep_row {
        count: 3,
        waiters_entry: 9,
        waiters_scope: tables::WAITERS_ALL,
        ..types::sleep_row::default()
    };
    Snapshot {
        threads: vec![thread; 3],
        open_calls: vec![(2, vec![ADDRESS + 1])],
        rows: BTreeMap::from([(39, types::row::default())]),
        sleeps: vec![(types::sleep_key::default(), sleep)],
        resources: vec![(lock, ended_at)],
        stacks: StackTable {
            kernel: HashMap::from([(STACK, vec![ADDRESS, ADDRESS + 1])]),
            ..StackTable::default()
        },
        ..Snapshot::empty(Tap::Kernel, Detail::default(), 5)
    }
}

fn encoded() -> Vec<u8> {
    let text = FrameText {
        function: "do_wait".to_string(),
        offset: 4,
        line: None,
    };
    let beside = Beside {
        tasks: HashMap::from([(2, types::in_flight::default())]),
        triggers: vec![Counts::default()],
    };
    encode(&snapshot(), 1, &Places::from([(ADDRESS, text)]), &beside)
}

#[test]
fn addresses_and_counts_of_others_stay_with_the_broker() {
    let bytes = encoded();
    let as_number = protocol::encode(&ADDRESS);
    for address in [&ADDRESS.to_ne_bytes()[..], &as_number] {
        assert!(!bytes.windows(address.len()).any(|some| some == address));
    }
    let received = decode(&bytes).unwrap();
    let snapshot = &received.snapshot;
    assert_eq!((snapshot.threads.len(), received.ended), (3, 1));
    assert_eq!(
        (snapshot.threads[0].calls, snapshot.threads[0].task),
        (7, 0)
    );
    let (key, row) = &snapshot.resources[0];
    assert_eq!((key.resource.id, row.ends.peer_tgid), (0, 0));
    assert_eq!(row.ends.peer_comm[0], 0);
    let (_, sleep) = &snapshot.sleeps[0];
    assert_eq!(
        (sleep.count, sleep.waiters_entry, sleep.waiters_scope),
        (3, 0, 0)
    );
    assert!(addresses(snapshot).all(|number| number < 100));
}

#[test]
fn what_stands_for_an_address_has_its_place() {
    let received = decode(&encoded()).unwrap();
    assert_eq!(received.beside.triggers, [Counts::default()]);
    assert!(received.beside.tasks.contains_key(&2));
    let frames: HashMap<u64, FrameText> = received.frames.into_iter().collect();
    let stack = &received.snapshot.stacks.kernel[&STACK];
    let names = stack.iter().map(|number| frames[number].function.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["do_wait", "(no symbol)"]);
    assert_eq!(received.snapshot.open_calls, [(2, vec![stack[1]])]);
}

/// One row of each table, in which every field that is sent has a different value.
#[test]
fn rows_pass_with_all_fields_that_are_named() {
    let mut sent = snapshot();
    let comm = [7i8; 16];
    let link = types::chain_link {
        stack: 1,
        blocked_ns: 2,
        stack_ns: 3,
        call: 4,
        lock_flags: 5,
        tid: 6,
        certainty: 7,
        doing: 8,
        measured: 9,
        comm,
    };
    let mut links = [types::chain_link::default(); 4];
    links[..2].fill(link);
    let chain = types::chain_row {
        count: 3,
        length: 2,
        end: 1,
        links,
    };
    let mut row = types::row {
        calls: 1,
        errors: 2,
        restarts: 3,
        parts: [4, 5, 6, 7, 8, 9],
        faults_minor: 10,
        faults_major: 11,
        max_ns: 12,
        spin_ns: 13,
        read_bytes: 14,
        write_bytes: 15,
        ..types::row::default()
    };
    (row.histogram[0], row.histogram[295]) = (16, 17);
    let mut cpu = types::cpu_row {
        turns: 1,
        ns: 2,
        max_ns: 3,
        quota_ns: 4,
        period_ns: 5,
        flags: 6,
        cpus_allowed: 7,
        comm,
        ..types::cpu_row::default()
    };
    cpu.group[..3].fill(9);
    let mut socket = types::resource_row {
        count: 1,
        blocked_ns: 2,
        ..types::resource_row::default()
    };
    (socket.ends.family, socket.ends.r#type) = (3, 4);
    (socket.ends.local_port, socket.ends.peer_port) = (5, 6);
    (socket.ends.local, socket.ends.peer) = ([8; 16], [9; 16]);
    socket.name[1..4].fill(10); // an abstract address begins with a zero
    let mut stack = types::user_stack {
        tgid: 1,
        depth: tables::RAW_STACK,
        ..types::user_stack::default()
    };
    stack.frames[2] = 5;
    sent.rows = BTreeMap::from([(39, row)]);
    sent.chains = vec![chain];
    sent.cpu_waits = vec![(types::cpu_key::default(), cpu)];
    sent.resources = vec![(types::resource_key::default(), socket)];
    sent.stacks.user = HashMap::from([(STACK, stack)]);
    (sent.lost.unseen_wait_ns, sent.lost.in_calls) = (4, [5; 6]);
    let bytes = encode(&sent, 1, &Places::new(), &Beside::default());
    let got = decode(&bytes).expect("a snapshot").snapshot;
    // The structs are integers without padding, so equal bytes mean equal values.
    assert_eq!(tables::bytes_of(&got.rows[&39]), tables::bytes_of(&row));
    assert_eq!(tables::bytes_of(&got.chains[0]), tables::bytes_of(&chain));
    assert_eq!(
        tables::bytes_of(&got.cpu_waits[0].1),
        tables::bytes_of(&cpu)
    );
    assert_eq!(
        tables::bytes_of(&got.resources[0].1),
        tables::bytes_of(&socket)
    );
    assert_eq!(
        tables::bytes_of(&got.stacks.user[&STACK]),
        tables::bytes_of(&stack)
    );
    assert_eq!(tables::bytes_of(&got.lost), tables::bytes_of(&sent.lost));
}

#[test]
fn snapshots_that_were_cut_are_refused() {
    let bytes = encoded();
    for length in (0..bytes.len()).step_by(7) {
        assert!(decode(&bytes[..length]).is_none());
    }
}

proptest! {
    #[test]
    fn damaged_snapshots_are_refused_or_others(
        at in any::<prop::sample::Index>(), with in any::<u8>(),
    ) {
        let mut bytes = encoded();
        let at = at.index(bytes.len());
        bytes[at] = with;
        if let Some(received) = decode(&bytes) {
            let count = received.snapshot.threads.len();
            prop_assert!(received.ended <= count);
        }
    }
}

use proptest::prelude::*;

use super::super::protocol::{self, Reply, Request, BATCH, REPLY_MAX, REQUEST_MAX};
use super::super::record_data::FiredCall;
use super::*;

/// A struct of the probes with the same byte everywhere.
fn filled<T: Copy>(with: u8) -> T {
    tables::read_value(&vec![with; std::mem::size_of::<T>()]).unwrap()
}

fn passed<T: Serialize + for<'a> Deserialize<'a>>(value: &T) -> T {
    protocol::decode(&protocol::encode(value)).unwrap()
}

#[test]
fn a_life_has_nothing_that_is_not_named() {
    let thread = filled::<types::thread>(0xff);
    let received = types::thread::from(&passed(&Life::from(&thread)));
    assert_eq!((received.tid, received.end_ns), (u32::MAX, u64::MAX));
    assert_eq!((received.parts, received.comm), (thread.parts, thread.comm));
    let hidden = [
        received.task,
        received.resource,
        received.spin_lock,
        received.entry_stack,
        received.run_delay_ns,
        u64::from(received.client),
        u64::from(received.waker_tid),
    ];
    assert_eq!(hidden, [0; 7]);
    assert_eq!(received.waker_comm, [0; 16]);
    assert_eq!(Life::from(&received), Life::from(&thread));
}

#[test]
fn a_lock_without_a_file_has_no_address() {
    let mut seen = filled::<types::resource_seen>(0x5a);
    seen.resource.kind = tables::RESOURCE_LOCK;
    for (what, id) in [(0, 0), (7, seen.resource.id)] {
        seen.resource.what = what;
        let received = types::resource_seen::from(&passed(&Resource::from(&seen)));
        assert_eq!(received.resource.id, id);
        assert_eq!((received.tgid, received.fd), (seen.tgid, seen.fd));
        assert_eq!(received.resource.tgid, seen.resource.tgid);
        assert_eq!(received.kind, tables::EVENT_RESOURCE);
    }
}

#[test]
fn a_file_has_its_name_and_no_bytes_after_it() {
    let mut seen = filled::<types::call_site_seen>(b'n');
    seen.at_ip.name[5] = 0;
    let received = types::call_site_seen::from(&passed(&CallSite::from(&seen)));
    let mut name = [0; 64];
    name[..5].fill(b'n' as i8);
    assert_eq!(received.at_ip.name, name);
    assert_eq!(received.program.name, [b'n' as i8; 64]);
    assert_eq!(received.at_ip.reserved, 0);
    assert_eq!((received.ip, received.tgid), (seen.ip, seen.tgid));
    // A name that is too long is truncated without an error.
    let file = File {
        name: vec![b'x'; 1000],
        ..File::default()
    };
    assert_eq!(types::mapped_file::from(&file).name, [b'x' as i8; 64]);
}

#[test]
fn a_title_passes_as_the_probes_sent_it() {
    let mut seen = filled::<types::title_seen>(7);
    (seen.kind, seen.bytes) = (tables::EVENT_TITLE, 3);
    seen.words[3..].fill(0);
    let received = types::title_seen::from(&passed(&Title::from(&seen)));
    assert_eq!(tables::bytes_of(&received), tables::bytes_of(&seen));
    // A title that is too long is truncated without an error.
    seen.bytes = u32::MAX;
    assert_eq!(types::title_seen::from(&Title::from(&seen)).bytes, 512);
}

#[test]
fn a_stack_passes_as_the_probes_sent_it() {
    let mut ask = filled::<types::stack_ask>(3);
    ask.bytes = 16;
    (ask.at_ip.reserved, ask.program.reserved) = (0, 0);
    let message = [tables::bytes_of(&ask), &[9; 16][..]].concat();
    let stack = passed(&Stack::of(&message).unwrap());
    assert_eq!(stack.message(), message);
    assert_eq!(Stack::of(&[0; 8]), None);
    // Words that are announced but missing are left out.
    let cut = Stack::of(&message[..message.len() - 6]).unwrap();
    assert_eq!(cut.words, [9; 10]);
}

#[test]
fn a_shape_with_too_many_checks_is_refused() {
    let mut shape = filled::<types::user_shape>(0xff);
    (shape.checks, shape.reserved) = (64, 0);
    let mut sent = Shape::from(&shape);
    let received = passed(&sent).for_probes().unwrap();
    assert_eq!(tables::bytes_of(&received), tables::bytes_of(&shape));
    let key = ShapeKey::from(&filled::<types::user_shape_key>(0xff));
    let shape = sent.clone();
    assert!(protocol::encode(&Request::Shape { key, shape }).len() <= REQUEST_MAX);
    sent.checks.push(Check::default());
    assert_eq!(sent.for_probes().map(|_| ()), None);
}

#[test]
fn the_longest_replies_are_not_too_long() {
    let events = Reply::Events {
        ended: vec![Life::from(&filled::<types::thread>(0xff)); BATCH],
        call_sites: vec![CallSite::from(&filled::<types::call_site_seen>(0xff)); BATCH],
        resources: vec![Resource::from(&filled::<types::resource_seen>(0xff)); BATCH],
        titles: vec![Title::from(&filled::<types::title_seen>(0xff)); BATCH],
        fired: vec![FiredCall::from(&filled::<types::trigger_fired>(0xff)); BATCH],
        is_more: true,
    };
    assert!(protocol::encode(&events).len() <= REPLY_MAX);
    let ask = filled::<types::stack_ask>(0xff);
    let longest = [tables::bytes_of(&ask), &[0xff; 20 << 10]].concat();
    let stack = Box::new(Stack::of(&longest).unwrap());
    assert!(protocol::encode(&Reply::Stack(stack)).len() <= REPLY_MAX);
}

proptest! {
    #[test]
    fn any_stack_is_a_message_of_the_probes(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        if let Some(stack) = protocol::decode::<Stack>(&bytes) {
            let message = stack.message();
            let again = Stack::of(&message).unwrap();
            prop_assert_eq!(again.words, stack.words);
        }
        if let Some(shape) = protocol::decode::<Shape>(&bytes) {
            let checks = shape.for_probes().map_or(0, |shape| shape.checks);
            prop_assert!(checks <= 64);
        }
    }
}

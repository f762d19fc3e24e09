// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages pass whole, damaged ones are refused, and the longest fit.

use proptest::prelude::*;

use super::*;
use crate::kept::Kept;
use crate::outside;
use crate::tables::types;

/// How many bytes of records may wait, triggers, and whether the session is looked at.
fn kept() -> impl Strategy<Value = (u32, Vec<String>, bool)> {
    let triggers = prop::collection::vec("[ -~]{0,100}", 0..8);
    (any::<u32>(), triggers, any::<bool>())
}

fn requests() -> impl Strategy<Value = Request> {
    let wish = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u32>()).prop_map(
        |(user_tap, sleeps, irq, max_threads)| Wish {
            user_tap,
            sleeps,
            irq,
            max_threads,
        },
    );
    let run_wish = (
        wish.clone(),
        any::<(bool, bool, bool, u64, bool, bool)>(),
        kept(),
    )
        .prop_map(
            |(asked, (io, callsites, cpu, slow_ns, attaches, one_process), kept)| RunWish {
                asked,
                io,
                callsites,
                cpu,
                slow_ns,
                attaches,
                one_process,
                history_bytes: kept.0,
                triggers: kept.1,
                live: kept.2,
            },
        );
    let shape = any::<(u64, u64)>().prop_map(|(ip, name)| Request::Shape {
        key: ShapeKey::from(&types::user_shape_key {
            ip,
            ..Default::default()
        }),
        shape: Shape::from(&types::user_shape {
            name,
            checks: (name % 65) as u32,
            value: [ip; 64],
            ..Default::default()
        }),
    });
    prop_oneof![
        any::<u32>().prop_map(|version| Request::Hello { version }),
        (any::<u64>(), wish).prop_map(|(nonce, wish)| Request::Enable { nonce, wish }),
        any::<u64>().prop_map(|stack| Request::Frames { stack }),
        (any::<u64>(), run_wish).prop_map(|(nonce, wish)| Request::Run { nonce, wish }),
        any::<bool>().prop_map(|is_running| Request::Enrol { is_running }),
        any::<u16>().prop_map(|wait_ms| Request::Events { wait_ms }),
        any::<(u32, u64, i32, u32)>().prop_map(|(tgid, ip, offset, rule)| Request::Wrapper {
            tgid,
            ip,
            offset,
            rule
        }),
        shape,
        any::<u32>().prop_map(|tgid| Request::Alive { tgid }),
        any::<bool>().prop_map(|is_last| Request::Report { is_last }),
        Just(Request::Records),
        any::<u64>().prop_map(|stack| Request::Place { stack }),
        any::<(u64, u32, u32)>().prop_map(|(stack, call, lock_flags)| {
            let key = types::resource_key {
                stack,
                call,
                lock_flags,
                ..Default::default()
            };
            Request::Named { key: (&key).into() }
        }),
        Just(Request::Stop),
        Just(Request::Look),
        any::<u64>().prop_map(|from_ns| Request::Asleep { from_ns }),
    ]
}

#[test]
fn an_admission_is_the_reply_without_memory() {
    let (version, nonce, slots) = (VERSION, u64::MAX - 1, 256);
    let welcome = encode(&Reply::Welcome { version, nonce });
    assert_eq!(
        decode(&welcome),
        Some(Admission::Welcome { version, nonce })
    );
    let enabled = encode(&Reply::Enabled { slots });
    assert_eq!(decode(&enabled), Some(Admission::Enabled { slots }));
    for other in [
        Reply::Refused("full".to_string()),
        Reply::Enrolled { threads: 1 },
        Reply::Frames(Vec::new()),
    ] {
        assert_eq!(decode::<Admission>(&encode(&other)), None);
    }
}

/// The largest values there are, which take the most bytes.
#[test]
fn as_many_records_as_are_sent_at_once_fit_into_a_reply() {
    let mut call = types::kept_call::default();
    let mut sleep = types::kept_sleep::default();
    let mut fired = types::trigger_fired::default();
    fill(&mut call);
    fill(&mut sleep);
    fill(&mut fired);
    for kept in [Kept::Call(call), Kept::Sleep(sleep)] {
        let part = RecordPart::of(&kept).unwrap();
        let reply = Reply::Records {
            parts: vec![part; RECORDS_AT_ONCE],
            lost_calls: u64::MAX,
            lost_sleeps: u64::MAX,
            is_more: true,
        };
        let packet = encode(&reply);
        assert!(packet.len() <= REPLY_MAX, "{}", packet.len());
        assert_eq!(decode(&packet), Some(reply));
    }
    let packet = encode(&vec![FiredCall::from(&fired); BATCH]);
    assert!(packet.len() <= REPLY_MAX / 4, "{}", packet.len());
}

/// Sets all bits. The structs are integers, for which any bits are a value.
fn fill<T: Copy>(value: &mut T) {
    // SAFETY: the bytes are those of the value, and any bytes are one.
    unsafe { std::ptr::from_mut(value).write_bytes(0xff, 1) };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_are_a_request_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..REQUEST_MAX)) {
        outside::request(&bytes, 0);
    }

    #[test]
    fn requests_pass_whole(request in requests()) {
        let packet = encode(&request);
        prop_assert!(packet.len() <= REQUEST_MAX);
        prop_assert_eq!(decode::<Request>(&packet), Some(request.clone()));
        let mut room = [0; REQUEST_MAX];
        prop_assert_eq!(encode_in(&request, &mut room), Some(&packet[..]));
        prop_assert_eq!(decode::<Request>(&packet[..packet.len() - 1]), None);
        let longer = [packet, vec![0]].concat();
        prop_assert_eq!(decode::<Request>(&longer), None);
    }

    #[test]
    fn damaged_requests_are_refused_or_others(
        request in requests(), at in any::<prop::sample::Index>(), with in any::<u8>(),
    ) {
        let mut packet = encode(&request);
        let at = at.index(packet.len());
        packet[at] = with;
        outside::request(&packet, at % 4);
    }

    #[test]
    fn any_bytes_are_a_reply_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        outside::reply(&bytes, bytes.len() % 3);
        outside::admission(&bytes, bytes.len() % 5);
    }
}

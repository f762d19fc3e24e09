//! What a client sends to `flash`: whole and in pieces, which must be the same. The first byte says how long they are.
#![no_main]

use flash::http::chunked::{Body, Passed};
use flash::http::conditions::{evaluate, range_holds, Validators};
use flash::http::ranges::{self, Asked};
use flash::http::request::{Parsed, Reader};
use libfuzzer_sys::fuzz_target;

const MAX_HEAD: usize = 1024;
const SIZE: u64 = 1000;

fuzz_target!(|data: &[u8]| {
    let Some((length, bytes)) = data.split_first() else {
        return;
    };
    let whole = Reader::default().read(bytes, MAX_HEAD);
    let mut reader = Reader::default();
    let mut end = 0;
    let in_pieces = loop {
        end = (end + usize::from(*length).max(1)).min(bytes.len());
        let parsed = reader.read(&bytes[..end], MAX_HEAD);
        if parsed != Parsed::Incomplete || end == bytes.len() {
            break parsed;
        }
    };
    // Which of two errors is found first may depend on where a piece ends.
    if !matches!(whole, Parsed::Refused(_)) {
        assert_eq!(whole, in_pieces);
    }
    let Parsed::Request(request, head) = whole else {
        return;
    };
    assert!(head <= bytes.len());
    let current = Validators {
        etag: "\"a-1\"".to_string(),
        modified: 784_111_777,
    };
    let _ = evaluate(&request.conditions, request.method, &current);
    let _ = range_holds(&request.conditions, &current, current.modified + 3_600);
    if let Some(range) = &request.conditions.range {
        if let Asked::Parts(parts) = ranges::parse(range, SIZE) {
            assert!(parts
                .iter()
                .all(|part| part.begin < part.end && part.end <= SIZE));
        }
    }
    if let Some(mut body) = Body::new(request.body) {
        if let Passed::Ended(at) = body.pass(&bytes[head..]) {
            assert!(at <= bytes.len() - head);
        }
    }
});

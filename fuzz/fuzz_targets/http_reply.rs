//! What a server sends to `latlab`, in pieces: the first byte says how long they are.
#![no_main]

use latlab::reply::Reply;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((length, bytes)) = data.split_first() else {
        return;
    };
    let mut reply = Reply::default();
    let mut came = 0;
    for piece in bytes.chunks(usize::from(*length).max(1)) {
        let mut at = 0;
        while at < piece.len() && !reply.is_done() {
            let fed = reply.feed(&piece[at..], |offset, range| {
                assert_eq!(offset, came);
                came += range.len() as u64;
            });
            match fed {
                Ok(used) => at += used,
                Err(_) => return,
            }
        }
    }
    assert_eq!(reply.received, came);
});

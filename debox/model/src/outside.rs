//! Everything in this crate that reads text from outside, behind functions that take any text. Fuzz targets
//! (`fuzz/`) and property tests call them; they are not part of the public interface.

use crate::frame::Frame;
use crate::labels::Labels;
use crate::predicate::{Predicate, TEXT_MAX};
use crate::runtimes::{Runtimes, Wait};

/// A predicate as typed by a user.
pub fn predicate(text: &str) {
    match Predicate::parse(text) {
        Ok(predicate) => {
            let printed = predicate.to_string();
            if printed.len() <= TEXT_MAX {
                assert_eq!(
                    Predicate::parse(&printed),
                    Ok(predicate.clone()),
                    "{printed}"
                );
            }
            let _ = predicate.compile();
        }
        Err(error) => {
            // The place must be inside the text that is shown.
            let place = error.place();
            assert!(place.start <= place.end && !error.to_string().is_empty());
        }
    }
}

/// Rules for a runtime's own waits.
fn runtimes(text: &str) {
    let mut runtimes = Runtimes::default();
    if runtimes.add("any.toml", text).is_err() {
        return;
    }
    for frames in [&["futex+0x1 (a.c:1)", "main+0x2"][..], &["a", ""], &[]] {
        let frames: Vec<Frame> = frames.iter().copied().map(Frame::from).collect();
        for waker in [None, Some("VM Thread")] {
            let found = runtimes.find(&Wait {
                call: "futex",
                label: "futex",
                frames: &frames,
                waker,
                waker_is_new: waker.is_some(),
            });
            assert!(found.is_none_or(|rule| rule < runtimes.rules().len()));
        }
    }
}

/// Rules for labels, and stacks to match them against.
pub fn labels(text: &str) {
    runtimes(text);
    let Ok(labels) = Labels::parse(&[("any.toml", text)]) else {
        return;
    };
    let stacks = [
        &["io_schedule", "folio_wait_bit_common", "filemap_read"][..],
        &["ep_poll", "do_epoll_wait"],
        &["schedule", ""],
        &[],
    ];
    for call in ["read", "epoll_wait", "(user)"] {
        for args in [None, Some([0; 3]), Some([u64::MAX; 3])] {
            for frames in stacks {
                let explained = labels.explain(call, args, frames);
                assert!(explained.site_index.is_none_or(|at| at < frames.len()));
            }
        }
        let _ = labels.arg_masks(call);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    proptest! {
        #[test]
        fn any_rules_for_labels_are_taken_or_refused(
            bytes in vec(any::<u8>(), 0..60),
            of_runtime: bool,
            at in any::<Index>(),
        ) {
            let text = match of_runtime {
                true => include_str!("../runtimes/tokio.toml"),
                false => include_str!("../labels/disk.toml"),
            };
            let mut text = text.to_string();
            let mut at = at.index(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.insert_str(at, &String::from_utf8_lossy(&bytes));
            labels(&text);
        }
    }
}

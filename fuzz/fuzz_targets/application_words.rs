// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the process of an application says to flash: one of three things, or nothing that flash believes.
#![no_main]

use flash::upstream::application::{Said, SAID};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    let Some(said) = Said::read(message) else {
        return;
    };
    assert_eq!(message.len(), SAID);
    match said {
        Said::Hello => assert!(message[2..].iter().all(|byte| *byte == 0)),
        Said::Progress(report) => {
            assert!(report.status == 0 || (200..600).contains(&report.status));
        }
        Said::Done(report, _) => assert!((200..600).contains(&report.status)),
    }
});

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients send to the path server, and what it sends to them: what is read is what would be written.
#![no_main]

use flash::path_server::protocol::{Answer, Question, MAX_PATH};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    if let Ok(question) = Question::read(message) {
        assert!(question.path.starts_with(b"/") && question.path.len() <= MAX_PATH);
        assert_eq!(question.write(), message);
    }
    if let Ok(answer) = Answer::read(message) {
        assert_eq!(answer.bytes(), message);
        assert!(answer.root_length.get() as usize <= MAX_PATH);
    }
});

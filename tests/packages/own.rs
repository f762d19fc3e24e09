// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user of the crate `debox`: scripts/packages-test builds it with the packed crates, and runs it.

use std::io::Write;

use debox::inband::{self, Options};

fn main() {
    inband::enable(&Options::default()).expect("DeBox is enabled");
    let (_reader, mut writer) = std::io::pipe().expect("a pipe is made");
    writer.write_all(b"abc").expect("it is written");
    let record = inband::last().expect("there is a record").copy();
    assert_eq!((record.call, record.ret), (1, 3), "the last call was the write");
    assert!(record.budget.total_ns() > 0);
    inband::disable().expect("DeBox is disabled");
}

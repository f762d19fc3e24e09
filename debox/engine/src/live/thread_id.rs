// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread, as long as it lives: ids are used again.

use crate::tables::types;

pub(super) type ThreadId = (u32, u64);

pub(super) fn id_of(thread: &types::thread) -> ThreadId {
    (thread.tid, thread.birth_ns)
}

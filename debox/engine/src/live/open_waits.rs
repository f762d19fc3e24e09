// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits that have not ended.
//!
//! Such a wait's time is shown while it lasts, look by look. When it ends the kernel adds its whole time to its row;
//! what was shown already is taken out of that.

use anyhow::Result;
use foldhash::HashMap;

use super::rows::{circumstances, Circumstances, LiveWait};
use super::source::Source;
use super::thread_id::{id_of, ThreadId};
use crate::recorder::texts::Texts;
use crate::session::frames_in_flight;
use crate::sleep_place::SleepPlace;
use crate::tables::{self, types};

/// Shorter waits are shown when they end.
const SHOWN_FROM_NS: u64 = 20_000_000;

/// A wait that lasts.
struct Open {
    /// The last look that showed it.
    look: u64,
    began_ns: u64,
    /// How much of it was shown.
    shown_ns: u64,
    is_ownable: bool,
    call: u32,
    first_arg: Option<u64>,
    about: Circumstances,
}

/// Those that were there at the last look.
#[derive(Default)]
pub(super) struct OpenWaits {
    open: HashMap<ThreadId, Open>,
    /// What was shown of waits, by thread, until they have ended.
    shown: HashMap<u32, Vec<Shown>>,
    looks: u64,
}

struct Shown {
    call: u32,
    ns: u64,
    looks: u32,
}

impl OpenWaits {
    /// Takes what was shown before out of the waits that have ended. A wait may have ended after the rows were read:
    /// then it is in those of the next look.
    pub fn take_out_shown(&mut self, waits: &mut [LiveWait]) {
        for wait in waits {
            let Some(shown) = self.shown.get_mut(&wait.tid) else {
                continue;
            };
            shown.retain(|shown| {
                let is_this = shown.call == wait.call_number && shown.ns <= wait.max_ns;
                if is_this {
                    wait.blocked_ns = wait.blocked_ns.saturating_sub(shown.ns);
                }
                !is_this
            });
        }
        self.shown.retain(|_, shown| {
            shown.retain_mut(|shown| {
                shown.looks += 1;
                shown.looks < 2
            });
            !shown.is_empty()
        });
    }

    /// The waits that last, with their time between these two.
    pub fn look(
        &mut self,
        source: &mut Source,
        texts: &mut Texts,
        living: &[types::thread],
        (from_ns, to_ns): (u64, u64),
    ) -> Result<Vec<LiveWait>> {
        self.looks += 1;
        let look = self.looks;
        let mut waits = Vec::new();
        let mut new = Vec::new();
        for thread in living {
            if thread.mode != tables::MODE_BLOCKED || began(thread) + SHOWN_FROM_NS > to_ns {
                continue;
            }
            match self.open.get_mut(&id_of(thread)) {
                Some(open) if open.began_ns == began(thread) => {
                    open.look = look;
                    waits.push(shown(texts, thread, open, (from_ns, to_ns)));
                }
                _ => new.push(thread),
            }
        }
        // Stacks are dear, and most threads have slept since the last look.
        let first_new = new.iter().map(|thread| began(thread)).min();
        let stacks = first_new.map(|from_ns| source.tasks(from_ns));
        let stacks = stacks.transpose()?.unwrap_or_default();
        for thread in new {
            let mut open = open_wait(source, texts, thread, stacks.get(&thread.index))?;
            open.look = look;
            waits.push(shown(texts, thread, &mut open, (from_ns, to_ns)));
            if let Some(over) = self.open.insert(id_of(thread), open) {
                note_over(&mut self.shown, thread.tid, &over);
            }
        }
        let shown = &mut self.shown;
        self.open.retain(|(tid, _), open| {
            let lasts = open.look == look;
            if !lasts {
                note_over(shown, *tid, open);
            }
            lasts
        });
        Ok(waits)
    }
}

/// A wait that is not there any more has ended.
fn note_over(shown: &mut HashMap<u32, Vec<Shown>>, tid: u32, over: &Open) {
    shown.entry(tid).or_default().push(Shown {
        call: over.call,
        ns: over.shown_ns,
        looks: 0,
    });
}

fn is_wait_for_events(call: u32) -> bool {
    let calls = [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ];
    calls.contains(&libc::c_long::from(call))
}

/// When the wait of a thread that is asleep began.
fn began(thread: &types::thread) -> u64 {
    match thread.has_parts {
        0 => thread.begin_ns,
        _ => thread.stamp_ns,
    }
}

fn open_wait(
    source: &Source,
    texts: &mut Texts,
    thread: &types::thread,
    task: Option<&types::in_flight>,
) -> Result<Open> {
    let (wait, lookups) = (source.known_wait(thread)?, source.lookups());
    let frames = task.map(frames_in_flight).unwrap_or_default();
    let args = task.map(|task| task.args);
    let named = texts.open_place(lookups, (thread.call, thread.lock_flags), args, &frames);
    let place = SleepPlace {
        stack: 0,
        call: thread.call,
        lock_flags: thread.lock_flags,
    };
    Ok(Open {
        look: 0,
        began_ns: began(thread),
        shown_ns: 0,
        is_ownable: wait.ownable != 0,
        call: thread.call,
        first_arg: args.map(|args| args[0]),
        about: circumstances(texts, lookups, (place, named), wait.resource, &wait.owner),
    })
}

/// The part of a wait between these two.
fn shown(
    texts: &mut Texts,
    thread: &types::thread,
    open: &mut Open,
    (from_ns, to_ns): (u64, u64),
) -> LiveWait {
    let lasts_ns = to_ns - open.began_ns;
    // If it was too short to be shown at the last look, what came before that comes now.
    let shown_ns = match open.shown_ns {
        0 => lasts_ns,
        _ => to_ns - from_ns,
    };
    open.shown_ns += shown_ns;
    let about = &open.about;
    LiveWait {
        pid: thread.tgid,
        tid: thread.tid,
        comm: texts.comm(&thread.comm),
        call: texts.call(thread.call),
        call_number: thread.call,
        label: about.named.label.clone(),
        class: about.named.class.clone(),
        site: about.named.site.clone(),
        stack: about.named.stack.clone(),
        resource_kind: about.resource_kind.clone(),
        resource: about.resource.clone(),
        device: about.device,
        is_ownable: open.is_ownable,
        holder: about.holder.clone(),
        waker: None,
        events_fd: open
            .first_arg
            .and_then(|fd| match is_wait_for_events(thread.call) {
                true => u32::try_from(fd).ok(),
                false => None,
            }),
        count: 0,
        blocked_ns: shown_ns,
        max_ns: lasts_ns,
        open_ns: Some(lasts_ns),
    }
}

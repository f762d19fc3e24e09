// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits in words.

use crate::history::Text;
use crate::predicate::{CpuOwner, Fields, Number, Site};
use crate::recorder::texts::{Lookups, Named, Texts};
use crate::sleep_place::SleepPlace;
use crate::tables::{self, types};

/// Waits of one thread, at one place, for one resource that one task held.
#[derive(Debug, Clone)]
pub struct LiveWait {
    pub pid: u32,
    pub tid: u32,
    pub comm: Text,
    /// The name of the call, or `(user)`.
    pub call: Text,
    pub call_number: u32,
    pub label: Text,
    pub class: Text,
    /// The kernel function that decided to wait.
    pub site: Text,
    /// The kernel's stack: outermost function first, `;` in between.
    pub stack: Option<Text>,
    pub resource_kind: Option<Text>,
    pub resource: Option<Text>,
    /// The device that the resource is on, as in `st_dev`.
    pub device: Option<u32>,
    /// Whether the resource is of a kind that a task can hold.
    pub is_ownable: bool,
    pub holder: Option<Holder>,
    /// What ended the longest of them.
    pub waker: Option<Waker>,
    /// Of waits for events: the epoll descriptor.
    pub events_fd: Option<u32>,
    /// How many have ended.
    pub count: u64,
    /// Their time. Of a wait that has not ended, the part since the last look.
    pub blocked_ns: u64,
    pub max_ns: u64,
    /// Of a wait that has not ended: how long it has lasted, as far as is known.
    pub open_ns: Option<u64>,
}

/// Who held what was waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub tid: u32,
    pub comm: Text,
    /// `exact`, `last reader` or `last holder`.
    pub certainty: Text,
    /// What it was doing when the longest wait began, if that is known.
    pub doing: Option<Text>,
}

/// What ended a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waker {
    /// `task`, `hardirq`, `softirq` or `unknown`.
    pub kind: Text,
    pub tid: Option<u32>,
    pub comm: Option<Text>,
}

/// What is known of a wait beside its time.
pub(super) struct Circumstances {
    pub named: Named,
    pub resource_kind: Option<Text>,
    pub resource: Option<Text>,
    pub device: Option<u32>,
    pub holder: Option<Holder>,
}

/// The device of a disk or of a file.
fn device_of(resource: &types::resource) -> Option<u32> {
    let is_file = resource.kind == tables::RESOURCE_FD
        && matches!(resource.what, libc::S_IFREG | libc::S_IFDIR);
    let has_device = is_file || resource.kind == tables::RESOURCE_DISK;
    (has_device && resource.device != 0).then_some(resource.device)
}

pub(super) fn circumstances(
    texts: &mut Texts,
    session: &dyn Lookups,
    (place, named): (SleepPlace, Named),
    resource: types::resource,
    owner: &types::owner,
) -> Circumstances {
    // Texts are found by what a recorder receives.
    let sleep = types::kept_sleep {
        stack: place.stack,
        call: place.call,
        lock_flags: place.lock_flags,
        resource,
        ..types::kept_sleep::default()
    };
    let (resource_kind, resource) = texts.resource(session, &sleep);
    Circumstances {
        named,
        resource_kind,
        device: device_of(&sleep.resource),
        resource,
        holder: (owner.certainty != 0).then(|| Holder {
            tid: owner.tid,
            comm: texts.comm(&owner.comm),
            certainty: texts.certainty(owner.certainty),
            doing: texts.doing(session, owner),
        }),
    }
}

/// Waits that have ended.
pub(super) fn wait(
    texts: &mut Texts,
    session: &dyn Lookups,
    key: &types::live_key,
    row: &types::live_row,
) -> LiveWait {
    let place = SleepPlace {
        stack: key.stack,
        call: key.call,
        lock_flags: key.lock_flags,
    };
    let named = texts.place(session, place);
    let about = circumstances(texts, session, (place, named), key.resource, &row.owner);
    let is_task = row.waker_kind == tables::WAKER_TASK;
    LiveWait {
        pid: key.tgid,
        tid: key.tid,
        comm: texts.comm(&row.comm),
        call: texts.call(key.call),
        call_number: key.call,
        label: about.named.label,
        class: about.named.class,
        site: about.named.site,
        stack: about.named.stack,
        resource_kind: about.resource_kind,
        resource: about.resource,
        device: about.device,
        is_ownable: row.ownable != 0,
        holder: about.holder,
        waker: Some(Waker {
            kind: texts.waker_kind(row.waker_kind),
            tid: is_task.then_some(row.waker_tid),
            comm: is_task.then(|| texts.comm(&row.waker_comm)),
        }),
        events_fd: key.events_at.checked_sub(1),
        count: row.count,
        blocked_ns: row.blocked_ns,
        max_ns: row.max_ns,
        open_ns: None,
    }
}

/// For filters: the waits as if they were one call.
impl Fields for LiveWait {
    fn call(&self) -> u32 {
        self.call_number
    }

    fn number(&self, field: Number) -> Option<i128> {
        Some(match field {
            Number::Wall | Number::Blocked => self.blocked_ns.into(),
            Number::Longest => self.max_ns.into(),
            Number::Sleeps => i128::from(self.count) + i128::from(self.open_ns.is_some()),
            Number::Pid => self.pid.into(),
            Number::Tid => self.tid.into(),
            _ => return None,
        })
    }

    fn is_restarted(&self) -> bool {
        false
    }

    fn comm(&self) -> Option<&str> {
        Some(&self.comm)
    }

    fn cpu_owner(&self) -> CpuOwner<'_> {
        CpuOwner::Unknown
    }

    fn sites(&self) -> impl Iterator<Item = Option<Site<'_>>> {
        std::iter::once(Some(Site {
            label: &self.label,
            class: &self.class,
        }))
    }
}

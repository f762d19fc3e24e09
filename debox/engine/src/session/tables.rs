// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others than the session itself read from and write to the probes' tables.

use std::cell::{Ref, RefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};

use super::{Events, Session};
use crate::options::{Detail, Options};
use crate::report::Deadlock;
use crate::tables::{self, types};
use crate::waited::Waits;

/// A table that is shared by its descriptor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table {
    Slots,
    SlotThreads,
    KernelStacks,
    SiteAnswers,
    TriggerCounts,
    Clients,
}

impl Session {
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn detail(&self) -> Detail {
        self.options.detail
    }

    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    pub(crate) fn has_trace(&self) -> bool {
        self.trace.is_some()
    }

    /// What has been received from the probes.
    pub(crate) fn events(&self) -> Ref<'_, Events> {
        self.events.borrow()
    }

    pub(crate) fn events_mut(&self) -> RefMut<'_, Events> {
        self.events.borrow_mut()
    }

    /// The deadlocks found so far.
    pub(crate) fn deadlocks(&self) -> &[Deadlock] {
        &self.deadlocks
    }

    /// What threads waited for in calls for descriptors, shortly before the stop.
    pub(crate) fn waited(&self) -> &Waits {
        &self.waited
    }

    /// The programs and maps, for their size.
    pub(crate) fn object(&self) -> &Object {
        self.skel.object()
    }

    /// Removes from the gate what killed sessions have left.
    pub(crate) fn tidy_gate(&self) {
        self.gate.tidy();
    }

    pub(crate) fn table(&self, table: Table) -> BorrowedFd<'_> {
        let maps = &self.skel.maps;
        match table {
            Table::Slots => maps.slots.as_fd(),
            Table::SlotThreads => maps.slot_tids.as_fd(),
            Table::KernelStacks => maps.kernel_stacks.as_fd(),
            Table::SiteAnswers => maps.site_answers.as_fd(),
            Table::TriggerCounts => maps.trigger_counts.as_fd(),
            Table::Clients => maps.clients.as_fd(),
        }
    }

    /// A handle of the table of kernel stacks that outlives the session.
    pub(crate) fn kernel_stacks(&self) -> libbpf_rs::Result<MapHandle> {
        MapHandle::try_from(&self.skel.maps.kernel_stacks)
    }

    /// The kernel stack of that name.
    pub(crate) fn kernel_stack(&self, name: u64) -> libbpf_rs::Result<Option<types::kernel_stack>> {
        let stacks = &self.skel.maps.kernel_stacks;
        let found = stacks.lookup(&name.to_ne_bytes(), MapFlags::ANY)?;
        Ok(found.as_deref().and_then(tables::read_value))
    }

    pub(crate) fn resource_row(&self, key: &types::resource_key) -> Option<types::resource_row> {
        let rows = &self.skel.maps.resource_rows;
        let found = rows.lookup(tables::bytes_of(key), MapFlags::ANY).ok()?;
        found.as_deref().and_then(tables::read_value)
    }

    /// Makes the probes capture cached stacks again: their names were evicted from the table.
    pub(crate) fn forget_kernel_stacks(&self) {
        let shapes = &self.skel.maps.shapes;
        let keys: Vec<Vec<u8>> = shapes.keys().collect();
        for key in keys {
            let _ = shapes.delete(&key);
        }
    }

    /// Passes the records to `sink` as they are received.
    pub(crate) fn receive_records(
        &self,
        mut sink: impl FnMut(&[u8]) + 'static,
    ) -> Result<RingBuffer<'static>> {
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.skel.maps.history, move |bytes| {
            sink(bytes);
            0
        })?;
        builder.build().context("cannot read the records")
    }

    /// How many calls and sleeps were lost because the reader was too slow.
    pub(crate) fn history_lost(&self) -> (u64, u64) {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or((0, 0), |bss| {
            (bss.history_lost_calls, bss.history_lost_sleeps)
        })
    }

    /// Stores where a program keeps a return address; only for a key that the probes have requested.
    pub(crate) fn learn_wrapper(&self, tgid: u32, ip: u64, value: types::wrapper) {
        self.set_wrapper(tgid, ip, value, MapFlags::EXIST);
    }

    /// Stores how a user stack is recognised. Best effort: without it the stack is sent again, under the same name.
    pub(crate) fn learn_shape(&self, key: &types::user_shape_key, shape: &types::user_shape) {
        let shapes = &self.skel.maps.user_shapes;
        let _ = shapes.update(
            tables::bytes_of(key),
            tables::bytes_of(shape),
            MapFlags::ANY,
        );
    }

    /// Gives a client its array of slots.
    pub(crate) fn give_slots(&self, client: u32, slots: BorrowedFd) -> libbpf_rs::Result<()> {
        let descriptor = slots.as_raw_fd().to_ne_bytes();
        let given = &self.skel.maps.slots_of_clients;
        given.update(&client.to_ne_bytes(), &descriptor, MapFlags::ANY)
    }

    /// Takes a client's array of slots back, if it has one.
    pub(crate) fn take_slots(&self, client: u32) {
        let given = &self.skel.maps.slots_of_clients;
        let _ = given.delete(&client.to_ne_bytes());
    }

    /// Makes an entry of the table of threads available again.
    pub(crate) fn free_thread(&self, index: u32) -> libbpf_rs::Result<()> {
        let free = &self.skel.maps.free_threads;
        free.update(&[], &index.to_ne_bytes(), MapFlags::ANY)
    }

    /// Entries of threads that were released, which probes may still be using.
    pub(crate) fn take_retired_threads(&self) -> Vec<u32> {
        let retired = &self.skel.maps.retired_threads;
        let mut taken = Vec::new();
        while let Ok(Some(index)) = retired.lookup_and_delete(&[]) {
            taken.extend(tables::read_value::<u32>(&index));
        }
        taken
    }

    /// Best effort: without it the report shows the wrapper instead of its caller.
    pub(super) fn set_wrapper(&self, tgid: u32, ip: u64, value: types::wrapper, flags: MapFlags) {
        let key = types::wrapper_key {
            ip,
            tgid,
            reserved: 0,
        };
        let wrappers = &self.skel.maps.wrappers;
        let _ = wrappers.update(tables::bytes_of(&key), tables::bytes_of(&value), flags);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that may have become members, as the kernel tells of them (debox/probe/arrivals.bpf.c).

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::rc::Rc;

use anyhow::{bail, Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject, RingBuffer, RingBufferBuilder};

use super::groups::Group;
use super::rules::Rule;
use crate::kernel;
use crate::skeleton_arrivals::{types, ArrivalsSkel, ArrivalsSkelBuilder};
use crate::tables;

/// The most names, and the most users (`NAMES_MAX` of debox/probe/arrivals.bpf.c).
const NAMES_MAX: usize = 64;

/// Loads and attaches all of the programs, and removes them.
pub(crate) fn try_arrivals() -> Result<()> {
    let everything = [
        Rule::Comm("debox-doctor".to_string()),
        Rule::User(u32::MAX),
        Rule::Group(Group::default()),
    ];
    Arrivals::open(&everything).map(drop)
}

/// A process that may be a member, and when that was noticed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub pid: u32,
    pub at_ns: u64,
    /// A session may monitor it already, as its parent's child.
    pub is_followed: bool,
}

/// The programs that tell of them. Dropping it removes them from the kernel.
pub(super) struct Arrivals {
    // Dropped in this order: the skeleton borrows from the object.
    ring: RingBuffer<'static>,
    skel: ArrivalsSkel<'static>,
    _object: Box<MaybeUninit<OpenObject>>,
    arrived: Rc<RefCell<Vec<Arrival>>>,
}

impl Arrivals {
    /// Loads what these rules need.
    pub fn open(rules: &[Rule]) -> Result<Arrivals> {
        kernel::silence_libbpf();
        let mut object = Box::new(MaybeUninit::uninit());
        // SAFETY: the box is kept, unmoved, as long as the skeleton, and is dropped after it.
        let storage: &'static mut MaybeUninit<OpenObject> =
            unsafe { &mut *std::ptr::from_mut(object.as_mut()) };
        let mut builder = ArrivalsSkelBuilder::default();
        builder
            .object_builder_mut()
            .btf_custom_path(kernel::TYPES)?;
        let mut open = builder
            .open(storage)
            .context("cannot open the probes of arrivals")?;
        let names: Vec<&String> = rules.iter().filter_map(comm).collect();
        let users: Vec<u32> = rules.iter().filter_map(user).collect();
        if names.len().max(users.len()) > NAMES_MAX {
            bail!("events tell of at most {NAMES_MAX} names and users");
        }
        let moves = rules.iter().any(|rule| matches!(rule, Rule::Group(_)));
        let settings = open.maps.rodata_data.as_deref_mut();
        let settings = settings.context("no .rodata in the probes of arrivals")?;
        settings.want_moves = moves;
        settings.want_names = !names.is_empty();
        settings.want_users = !users.is_empty();
        open.progs.on_move.set_autoload(moves);
        open.progs.on_birth.set_autoload(moves);
        open.progs.on_name.set_autoload(!names.is_empty());
        open.progs.on_program.set_autoload(!users.is_empty());
        let mut skel = open
            .load()
            .context("the kernel did not accept the probes of arrivals")?;
        for name in names {
            let mut key = [0; 16];
            key[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
            skel.maps.names.update(&key, &[1], MapFlags::ANY)?;
        }
        for user in users {
            skel.maps
                .users
                .update(&user.to_ne_bytes(), &[1], MapFlags::ANY)?;
        }
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&arrived);
        let mut builder = RingBufferBuilder::new();
        builder.add(&skel.maps.arrivals, move |bytes| {
            if let Some(arrival) = tables::read_value::<types::arrival>(bytes) {
                sink.borrow_mut().push(Arrival {
                    pid: arrival.tgid,
                    at_ns: arrival.at_ns,
                    is_followed: arrival.is_followed != 0,
                });
            }
            0
        })?;
        let ring = builder.build().context("cannot read the arrivals")?;
        skel.attach()
            .context("cannot attach the probes of arrivals")?;
        Ok(Arrivals {
            ring,
            skel,
            _object: object,
            arrived,
        })
    }

    /// A descriptor that is readable when there are arrivals.
    pub fn fd(&self) -> i32 {
        self.ring.epoll_fd()
    }

    /// Those since the last time.
    pub fn take(&mut self) -> Vec<Arrival> {
        // What could not be read is found by the next scan.
        let _ = self.ring.consume();
        std::mem::take(&mut *self.arrived.borrow_mut())
    }

    /// How many could not be told.
    pub fn lost(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| bss.arrivals_lost)
    }
}

fn comm(rule: &Rule) -> Option<&String> {
    match rule {
        Rule::Comm(comm) => Some(comm),
        _ => None,
    }
}

fn user(rule: &Rule) -> Option<u32> {
    match rule {
        Rule::User(user) => Some(*user),
        _ => None,
    }
}

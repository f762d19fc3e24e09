//! The rows of a report's tables on their way to a client: field by field, as in `probe_data.rs`.

use serde::{Deserialize, Serialize};

use crate::broker::probe_data::{fields_of, hide_address};
use crate::tables::{self, types, OpenWait};

/// The same as `fields_of`, of a struct of which no field may be forgotten: the compiler asks for a new one. `without` has
/// the fields that are not sent.
macro_rules! all_fields_of {
    (
        $(#[$about:meta])*
        $name:ident of $type:ident $(without $($hidden:ident),+)? {
            $($field:ident: $kind:ty),+ $(,)?
        }
    ) => {
        fields_of! {
            $(#[$about])*
            $name of $type { $($field: $kind),+ }
        }

        const _: fn(types::$type) = |types::$type { $($field: _,)+ $($($hidden: _,)+)? }| ();
    };
}

all_fields_of! {
    SleepKey of sleep_key {
        stack: u64,
        call: u32,
        lock_flags: u32,
    }
}

all_fields_of! {
    Sleep of sleep_row without reserved {
        count: u64,
        blocked_ns: u64,
        max_ns: u64,
        waiters_entry: u32,
        waiters_exit: u32,
        waiters_scope: u32,
    }
}

/// A sleep without the number of waiters among all tasks, which may be other users'.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownSleep(Sleep);

impl From<&types::sleep_row> for ShownSleep {
    fn from(row: &types::sleep_row) -> ShownSleep {
        let mut row = *row;
        if row.waiters_scope == tables::WAITERS_ALL {
            (row.waiters_entry, row.waiters_exit, row.waiters_scope) = (0, 0, 0);
        }
        ShownSleep(Sleep::from(&row))
    }
}

impl From<&ShownSleep> for types::sleep_row {
    fn from(shown: &ShownSleep) -> types::sleep_row {
        types::sleep_row::from(&shown.0)
    }
}

all_fields_of! {
    WakerKey of waker_key {
        stack: u64,
        call: u32,
        lock_flags: u32,
        kind: u32,
        tid: u32,
    }
}

all_fields_of! {
    Waker of waker_row {
        count: u64,
        comm: [i8; 16],
    }
}

all_fields_of! {
    OwnerKey of owner_key without reserved {
        stack: u64,
        call: u32,
        lock_flags: u32,
        owner_stack: u64,
        owner_call: u32,
        owner_lock_flags: u32,
        certainty: u32,
        doing: u32,
        tid: u32,
    }
}

all_fields_of! {
    OwnerRow of owner_row {
        count: u64,
        blocked_ns: u64,
        comm: [i8; 16],
    }
}

all_fields_of! {
    Named of resource {
        kind: u32,
        what: u32,
        device: u32,
        tgid: u32,
        id: u64,
    }
}

impl Named {
    pub fn of(mut resource: types::resource) -> Named {
        hide_address(&mut resource);
        Named::from(&resource)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceKey {
    stack: u64,
    call: u32,
    lock_flags: u32,
    resource: Named,
}

impl From<&types::resource_key> for ResourceKey {
    fn from(key: &types::resource_key) -> ResourceKey {
        ResourceKey {
            stack: key.stack,
            call: key.call,
            lock_flags: key.lock_flags,
            resource: Named::of(key.resource),
        }
    }
}

impl From<&ResourceKey> for types::resource_key {
    fn from(key: &ResourceKey) -> types::resource_key {
        types::resource_key {
            stack: key.stack,
            call: key.call,
            lock_flags: key.lock_flags,
            resource: types::resource::from(&key.resource),
        }
    }
}

all_fields_of! {
    /// A socket's ends, without the process at the other end, which may be another user's.
    Ends of socket_ends without peer_tgid, peer_comm, reserved {
        family: u16,
        r#type: u16,
        local_port: u16,
        peer_port: u16,
        local: [u8; 16],
        peer: [u8; 16],
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceRow {
    count: u64,
    blocked_ns: u64,
    ends: Ends,
    /// A file's name, or a Unix socket's address, which may begin with a zero.
    name: Vec<i8>,
}

impl From<&types::resource_row> for ResourceRow {
    fn from(row: &types::resource_row) -> ResourceRow {
        let types::resource_row {
            count,
            blocked_ns,
            ends,
            name,
        } = row;
        ResourceRow {
            count: *count,
            blocked_ns: *blocked_ns,
            ends: Ends::from(ends),
            name: without_zeros(name),
        }
    }
}

impl From<&ResourceRow> for types::resource_row {
    fn from(row: &ResourceRow) -> types::resource_row {
        let mut made = types::resource_row {
            count: row.count,
            blocked_ns: row.blocked_ns,
            ends: types::socket_ends::from(&row.ends),
            name: types::resource_row::default().name,
        };
        fill(&mut made.name, &row.name);
        made
    }
}

/// A kernel lock that a call spun on. Its address is not sent: rows differ by their places in the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spin {
    call: u32,
    flags: u32,
    count: u64,
    ns: u64,
    max_ns: u64,
    stack: u64,
    resource: Named,
}

impl Spin {
    pub fn list(spins: &[(types::spin_key, types::spin_row)]) -> Vec<Spin> {
        let shown = |(key, row): &(types::spin_key, types::spin_row)| {
            let types::spin_key {
                lock: _,
                call,
                flags,
            } = *key;
            let types::spin_row {
                count,
                ns,
                max_ns,
                stack,
                resource,
            } = *row;
            Spin {
                call,
                flags,
                count,
                ns,
                max_ns,
                stack,
                resource: Named::of(resource),
            }
        };
        spins.iter().map(shown).collect()
    }

    /// The row of the table, for a given place in the list.
    pub fn row((place, spin): (usize, &Spin)) -> (types::spin_key, types::spin_row) {
        let key = types::spin_key {
            lock: place as u64,
            call: spin.call,
            flags: spin.flags,
        };
        let row = types::spin_row {
            count: spin.count,
            ns: spin.ns,
            max_ns: spin.max_ns,
            stack: spin.stack,
            resource: types::resource::from(&spin.resource),
        };
        (key, row)
    }
}

all_fields_of! {
    Link of chain_link {
        stack: u64,
        blocked_ns: u64,
        stack_ns: u64,
        call: u32,
        lock_flags: u32,
        tid: u32,
        certainty: u32,
        doing: u32,
        measured: u32,
        comm: [i8; 16],
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    count: u64,
    end: u32,
    links: Vec<Link>,
}

impl From<&types::chain_row> for Chain {
    fn from(row: &types::chain_row) -> Chain {
        let links = row.links.iter().take(row.length as usize);
        Chain {
            count: row.count,
            end: row.end,
            links: links.map(Link::from).collect(),
        }
    }
}

impl From<&Chain> for types::chain_row {
    fn from(chain: &Chain) -> types::chain_row {
        let mut row = types::chain_row {
            count: chain.count,
            end: chain.end,
            ..types::chain_row::default()
        };
        for (to, link) in row.links.iter_mut().zip(&chain.links) {
            *to = types::chain_link::from(link);
            row.length += 1;
        }
        row
    }
}

all_fields_of! {
    CpuKey of cpu_key {
        call: u32,
        part: u32,
        kind: u32,
        tgid: u32,
        group: u64,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuRow {
    turns: u64,
    ns: u64,
    max_ns: u64,
    quota_ns: u64,
    period_ns: u64,
    flags: u32,
    cpus_allowed: u32,
    comm: [i8; 16],
    group: Vec<i8>,
}

impl From<&types::cpu_row> for CpuRow {
    fn from(row: &types::cpu_row) -> CpuRow {
        let types::cpu_row {
            turns,
            ns,
            max_ns,
            quota_ns,
            period_ns,
            flags,
            cpus_allowed,
            comm,
            group,
        } = *row;
        CpuRow {
            turns,
            ns,
            max_ns,
            quota_ns,
            period_ns,
            flags,
            cpus_allowed,
            comm,
            group: without_zeros(&group),
        }
    }
}

impl From<&CpuRow> for types::cpu_row {
    fn from(row: &CpuRow) -> types::cpu_row {
        let mut made = types::cpu_row {
            turns: row.turns,
            ns: row.ns,
            max_ns: row.max_ns,
            quota_ns: row.quota_ns,
            period_ns: row.period_ns,
            flags: row.flags,
            cpus_allowed: row.cpus_allowed,
            comm: row.comm,
            group: types::cpu_row::default().group,
        };
        fill(&mut made.group, &row.group);
        made
    }
}

all_fields_of! {
    SiteKey of site_key {
        stack: u64,
        user_stack: u64,
        call: u32,
        lock_flags: u32,
    }
}

all_fields_of! {
    Site of site_row {
        count: u64,
        blocked_ns: u64,
        wall_ns: u64,
        max_ns: u64,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStack {
    tgid: u32,
    depth: u32,
    frames: Vec<u64>,
}

impl From<&types::user_stack> for UserStack {
    fn from(stack: &types::user_stack) -> UserStack {
        UserStack {
            tgid: stack.tgid,
            depth: stack.depth,
            frames: without_zeros(&stack.frames),
        }
    }
}

impl From<&UserStack> for types::user_stack {
    fn from(stack: &UserStack) -> types::user_stack {
        let mut made = types::user_stack {
            tgid: stack.tgid,
            depth: stack.depth,
            ..types::user_stack::default()
        };
        fill(&mut made.frames, &stack.frames);
        made
    }
}

all_fields_of! {
    /// An owner without its place in the probes' table and its total time asleep.
    Owner of owner without index, blocked_ns {
        certainty: u32,
        tid: u32,
        doing: u32,
        stack: u64,
        call: u32,
        lock_flags: u32,
        comm: [i8; 16],
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    resource: Named,
    owner: Owner,
    lock_flags: u32,
    ownable: u32,
}

impl From<&OpenWait> for Wait {
    fn from(wait: &OpenWait) -> Wait {
        Wait {
            resource: Named::of(wait.resource),
            owner: Owner::from(&wait.owner),
            lock_flags: wait.lock_flags,
            ownable: wait.ownable,
        }
    }
}

impl From<&Wait> for OpenWait {
    fn from(wait: &Wait) -> OpenWait {
        OpenWait {
            resource: types::resource::from(&wait.resource),
            owner: types::owner::from(&wait.owner),
            lock_flags: wait.lock_flags,
            ownable: wait.ownable,
        }
    }
}

/// The elements up to the last one that is not zero.
fn without_zeros<T: Copy + Default + PartialEq>(all: &[T]) -> Vec<T> {
    let end = all.iter().rposition(|one| *one != T::default());
    all[..end.map_or(0, |at| at + 1)].to_vec()
}

/// Copies as many elements as there is room for.
fn fill<T: Copy>(room: &mut [T], all: &[T]) {
    for (to, one) in room.iter_mut().zip(all) {
        *to = *one;
    }
}

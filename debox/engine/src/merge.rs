//! Merges the rows of one call and site, whichever stacks and tasks led there.

use std::collections::BTreeMap;

use crate::frame::Frame;
use crate::report::{Owner, Resource, ResourceShare, Sleep, SleepCallSite, Untapped, Waker};
use crate::tables::add;

/// Different stacks can reach the same site; the report has one row for a call and site.
pub(crate) fn merge_same_site(sleeps: Vec<Sleep>) -> Vec<Sleep> {
    let mut merged: BTreeMap<(String, String, Frame), Sleep> = BTreeMap::new();
    for sleep in sleeps {
        let key = (
            sleep.syscall.clone(),
            sleep.label.clone(),
            sleep.site.clone(),
        );
        match merged.get_mut(&key) {
            None => {
                merged.insert(key, sleep);
            }
            Some(sum) => add_sleep(sum, sleep),
        }
    }
    merged
        .into_values()
        .map(|mut sleep| {
            sleep.call_sites = merge_call_sites(sleep.call_sites);
            sleep.owners = merge_owners(sleep.owners);
            sleep.resources = merge_resources(sleep.resources);
            sleep.resource = sleep.resources.first().map(|most| most.resource.clone());
            sleep
        })
        .collect()
}

/// Adds a sleep to another at the same site. All fields are named, so the compiler finds one that is forgotten.
fn add_sleep(sum: &mut Sleep, sleep: Sleep) {
    let Sleep {
        syscall: _,
        label: _,
        class: _,
        site: _,
        count,
        blocked_ns,
        max_ns,
        frames,
        wakers,
        waiters_entry_max,
        waiters_exit_max,
        waiters_scope,
        resource: _, // made from `resources` at the end
        resources,
        owners,
        call_sites,
    } = sleep;
    if blocked_ns > sum.blocked_ns {
        sum.frames = frames; // show the stack with the most time
    }
    add(&mut sum.count, count);
    add(&mut sum.blocked_ns, blocked_ns);
    sum.max_ns = sum.max_ns.max(max_ns);
    sum.waiters_entry_max = sum.waiters_entry_max.max(waiters_entry_max);
    sum.waiters_exit_max = sum.waiters_exit_max.max(waiters_exit_max);
    if sum.waiters_scope.is_none() {
        sum.waiters_scope = waiters_scope;
    }
    merge_wakers(&mut sum.wakers, wakers);
    sum.owners.extend(owners);
    sum.resources.extend(resources);
    sum.call_sites.extend(call_sites);
}

/// The same for calls that the user tap did not see.
pub(crate) fn merge_untapped(mut call: Untapped) -> Untapped {
    call.owners = merge_owners(call.owners);
    call.resources = merge_resources(call.resources);
    call
}

fn merge_wakers(wakers: &mut Vec<Waker>, more: Vec<Waker>) {
    for waker in more {
        let same = wakers
            .iter_mut()
            .find(|known| known.kind == waker.kind && known.tid == waker.tid);
        match same {
            Some(known) => add(&mut known.count, waker.count),
            None => wakers.push(waker),
        }
    }
    wakers.sort_by_key(|waker| std::cmp::Reverse(waker.count));
}

fn merge_owners(owners: Vec<Owner>) -> Vec<Owner> {
    let mut merged: BTreeMap<_, Owner> = BTreeMap::new();
    for owner in owners {
        let key = (owner.certainty, owner.tid, owner.doing.clone());
        match merged.get_mut(&key) {
            None => {
                merged.insert(key, owner);
            }
            Some(sum) => {
                add(&mut sum.count, owner.count);
                add(&mut sum.blocked_ns, owner.blocked_ns);
            }
        }
    }
    let mut owners: Vec<Owner> = merged.into_values().collect();
    owners.sort_by_key(|owner| std::cmp::Reverse((owner.blocked_ns, owner.count)));
    owners
}

fn merge_resources(resources: Vec<ResourceShare>) -> Vec<ResourceShare> {
    let mut merged: BTreeMap<Resource, ResourceShare> = BTreeMap::new();
    for share in resources {
        let sum = merged
            .entry(share.resource.clone())
            .or_insert_with(|| ResourceShare {
                resource: share.resource,
                ..ResourceShare::default()
            });
        add(&mut sum.count, share.count);
        add(&mut sum.blocked_ns, share.blocked_ns);
    }
    let mut resources: Vec<ResourceShare> = merged.into_values().collect();
    resources.sort_by_key(|share| std::cmp::Reverse((share.blocked_ns, share.count)));
    resources
}

fn merge_call_sites(sites: Vec<SleepCallSite>) -> Vec<SleepCallSite> {
    let mut merged: BTreeMap<Vec<Frame>, SleepCallSite> = BTreeMap::new();
    for site in sites {
        let sum = merged
            .entry(site.frames.clone())
            .or_insert_with(|| SleepCallSite {
                frames: site.frames,
                caller: site.caller,
                ..SleepCallSite::default()
            });
        add(&mut sum.count, site.count);
        add(&mut sum.blocked_ns, site.blocked_ns);
    }
    let mut sites: Vec<SleepCallSite> = merged.into_values().collect();
    sites.sort_by_key(|site| std::cmp::Reverse(site.blocked_ns));
    sites
}

//! Reports what sleeps waited on, who held it, and who waited for whom.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::Snapshot;
use crate::calls;
use crate::explain::Explainer;
use crate::report::{
    Certainty, Chain, ChainEnd, ChainLink, Holder, Owner, Resource, ResourceShare,
};
use crate::resources::Resources;
use crate::sleep_place::SleepPlace;
use crate::tables::{self, types, OpenWait};

impl Snapshot {
    pub(super) fn owners(&self, explainer: &Explainer) -> HashMap<SleepPlace, Vec<Owner>> {
        let mut owners: HashMap<SleepPlace, Vec<Owner>> = HashMap::new();
        for (key, row) in &self.owners {
            let is_known = key.certainty != 0;
            let sleeping = SleepPlace {
                stack: key.owner_stack,
                call: key.owner_call,
                lock_flags: key.owner_lock_flags,
            };
            owners.entry(key.into()).or_default().push(Owner {
                certainty: certainty(key.certainty),
                comm: is_known.then(|| tables::comm(&row.comm)),
                tid: is_known.then_some(key.tid),
                count: row.count,
                blocked_ns: row.blocked_ns,
                doing: doing(explainer, key.doing, sleeping),
            });
        }
        owners
    }

    pub(super) fn resources(&self, names: &Resources) -> HashMap<SleepPlace, Vec<ResourceShare>> {
        let mut resources: HashMap<SleepPlace, Vec<ResourceShare>> = HashMap::new();
        for (key, row) in &self.resources {
            resources
                .entry(key.into())
                .or_default()
                .push(ResourceShare {
                    resource: names.describe(&key.resource, key.lock_flags, row),
                    count: row.count,
                    blocked_ns: row.blocked_ns,
                });
        }
        resources
    }

    /// The chains. Those whose links look the same in the report are merged.
    pub(super) fn chains(&self, explainer: &Explainer) -> Vec<Chain> {
        let mut merged: BTreeMap<Vec<String>, Chain> = BTreeMap::new();
        for row in &self.chains {
            let chain = chain(explainer, row);
            let key = reads_as(&chain);
            match merged.get_mut(&key) {
                None => {
                    merged.insert(key, chain);
                }
                Some(sum) => add(sum, &chain),
            }
        }
        let mut chains: Vec<Chain> = merged.into_values().collect();
        chains.sort_by_key(|chain| Reverse(chain.links[0].waited_ns));
        chains
    }
}

fn chain(explainer: &Explainer, row: &types::chain_row) -> Chain {
    let length = (row.length as usize).clamp(1, row.links.len());
    let links = row.links[..length].iter().enumerate();
    Chain {
        count: row.count,
        end: match row.end {
            tables::CHAIN_CYCLE => ChainEnd::Cycle,
            tables::CHAIN_TOO_LONG => ChainEnd::Length,
            _ => ChainEnd::Complete,
        },
        links: links
            .map(|(index, link)| chain_link(explainer, link, index == 0, index + 1 == length))
            .collect(),
    }
}

fn chain_link(
    explainer: &Explainer,
    link: &types::chain_link,
    is_first: bool,
    is_last: bool,
) -> ChainLink {
    let is_measured = link.measured != 0;
    let slept = if is_measured {
        link.blocked_ns > 0
    } else {
        link.doing == tables::DOING_ASLEEP
    };
    let place = SleepPlace::from(link).tapped();
    let explained = slept.then(|| explainer.sleep(place));
    ChainLink {
        comm: tables::comm(&link.comm),
        tid: (link.tid != 0).then_some(link.tid),
        waited_ns: is_measured.then_some(link.blocked_ns),
        label_ns: is_measured.then_some(link.stack_ns),
        syscall: slept.then(|| calls::name(place.call)),
        doing: match link.doing {
            _ if is_first => None,
            tables::DOING_ASLEEP if is_measured => Some("asleep".to_string()),
            state => doing(explainer, state, place),
        },
        certainty: (!is_last).then(|| certainty(link.certainty)),
        label: explained.as_ref().map(|sleep| sleep.label.clone()),
        class: explained.map(|sleep| sleep.class),
    }
}

/// The key by which chains are merged.
fn reads_as(chain: &Chain) -> Vec<String> {
    let mut key = vec![chain.end.to_string()];
    for link in &chain.links {
        key.push(link.comm.clone());
        let certainty = link.certainty.map(|certainty| certainty.to_string());
        key.extend([&link.syscall, &link.label, &certainty].map(|text| format!("{text:?}")));
        if link.waited_ns.is_none() {
            key.push(format!("{:?}", link.doing));
        }
    }
    key
}

fn add(sum: &mut Chain, chain: &Chain) {
    let add = |sum: &mut Option<u64>, more: Option<u64>| {
        *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
    };
    tables::add(&mut sum.count, chain.count);
    for (link, more) in sum.links.iter_mut().zip(&chain.links) {
        add(&mut link.waited_ns, more.waited_ns);
        add(&mut link.label_ns, more.label_ns);
        link.tid = link.tid.filter(|tid| more.tid == Some(*tid));
        if link.doing != more.doing {
            link.doing = None;
        }
    }
}

/// What a thread that is asleep now waits on.
pub(super) fn open_resource(names: &Resources, wait: &OpenWait) -> Option<Resource> {
    let row = types::resource_row::default();
    let is_known = wait.resource.kind != tables::RESOURCE_NONE;
    is_known.then(|| names.describe(&wait.resource, wait.lock_flags, &row))
}

/// Who holds that resource, if it can be held.
pub(super) fn holder(explainer: &Explainer, wait: &OpenWait) -> Option<Holder> {
    let owner = &wait.owner;
    let is_known = owner.certainty != 0;
    (wait.ownable != 0).then(|| Holder {
        certainty: certainty(owner.certainty),
        comm: is_known.then(|| tables::comm(&owner.comm)),
        tid: is_known.then_some(owner.tid),
        doing: doing(explainer, owner.doing, owner.into()),
    })
}

pub(crate) fn certainty(certainty: u32) -> Certainty {
    match certainty {
        tables::OWNER_EXACT => Certainty::Exact,
        tables::OWNER_LAST_READER => Certainty::LastReader,
        tables::OWNER_LAST_HOLDER => Certainty::LastHolder,
        _ => Certainty::None,
    }
}

/// What a task was doing; if it was asleep, the label of its sleep at `place`.
pub(crate) fn doing(explainer: &Explainer, doing: u32, place: SleepPlace) -> Option<String> {
    match doing {
        tables::DOING_ON_CPU => Some("on CPU".to_string()),
        tables::DOING_WAITING_FOR_CPU => Some("waiting for a CPU".to_string()),
        tables::DOING_ASLEEP => Some(explainer.sleep(place.tapped()).label),
        _ => None,
    }
}

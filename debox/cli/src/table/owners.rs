//! What threads waited on and who held it, and whom the holders waited for in turn.

use std::cmp::Reverse;
use std::io::{self, Write};

use debox::report::{
    Certainty, Chain, ChainEnd, ChainLink, Holder, InFlight, Owner, Report, Resource, Sleep,
};

use super::grid::{name, number, text, Cell, Grid};
use super::{heading, shown, TableOptions};
use crate::units;

const SLEEPS: usize = 10;
const OWNERS: usize = 2;
const CHAINS: usize = 6;

/// Prints each site whose resource has a name or an owner, except idle waits.
pub fn print(out: &mut impl Write, report: &Report, options: &TableOptions) -> io::Result<()> {
    let mut sleeps: Vec<&Sleep> = report.sleeps.iter().filter(|s| is_told(s)).collect();
    if sleeps.is_empty() {
        return Ok(());
    }
    heading(out, "What it waited on, and who held it", options)?;
    sleeps.sort_by_key(|sleep| Reverse(sleep.blocked_ns));
    let mut grid = Grid::new([
        name("label"),
        name("call"),
        number("time"),
        text("waited on"),
        text("held, when it began, by"),
    ]);
    let shown = shown(sleeps.len(), SLEEPS, options);
    for sleep in &sleeps[..shown] {
        grid.row([
            Cell::text(&sleep.label),
            Cell::text(&sleep.syscall),
            Cell::time(sleep.blocked_ns),
            Cell::text(resources(sleep, options)),
            Cell::text(names(&sleep.owners, options)),
        ]);
    }
    let rest = &sleeps[shown..];
    if !rest.is_empty() {
        grid.quiet_row([
            Cell::text(format!("… {} more", rest.len())),
            Cell::blank(),
            Cell::time(rest.iter().map(|sleep| sleep.blocked_ns).sum()),
            Cell::blank(),
            Cell::blank(),
        ]);
    }
    grid.print(out, options)
}

fn is_told(sleep: &Sleep) -> bool {
    let is_owned = is_any_known(&sleep.owners);
    let is_named = sleep.resource.as_ref().is_some_and(|r| r.name.is_some());
    sleep.class != "idle" && (is_owned || is_named)
}

pub(super) fn is_any_known(owners: &[Owner]) -> bool {
    owners
        .iter()
        .any(|owner| owner.certainty != Certainty::None)
}

/// The resource that cost most, and the number of others.
fn resources(sleep: &Sleep, options: &TableOptions) -> String {
    let names = sleep
        .resources
        .iter()
        .map(|share| resource(&share.resource));
    match sleep.resources.len() {
        count if count > 1 && !options.all => {
            let most = sleep.resource.as_ref().map(resource).unwrap_or_default();
            format!("{most}, {} more", units::count(count as u64 - 1))
        }
        _ => names.collect::<Vec<_>>().join(", "),
    }
}

/// `rwsem inode lock of /file, held by writer/12 (page read)`.
pub(super) fn held_resource(call: &InFlight) -> Option<String> {
    let name = call.resource.as_ref().filter(|r| r.name.is_some());
    let holder = call.owner.as_ref().and_then(holder);
    let texts = [
        name.map(resource),
        holder.map(|who| format!("held by {who}")),
    ];
    let texts: Vec<String> = texts.into_iter().flatten().collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn holder(holder: &Holder) -> Option<String> {
    let (comm, tid) = (holder.comm.as_ref()?, holder.tid?);
    let unsure = unsure(holder.certainty);
    Some(match &holder.doing {
        Some(doing) => format!("{unsure}{comm}/{tid} ({doing})"),
        None => format!("{unsure}{comm}/{tid}"),
    })
}

/// Qualifies an owner that is not certain.
fn unsure(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::LastReader => "last reader ",
        Certainty::LastHolder => "last holder ",
        Certainty::Exact | Certainty::None => "",
    }
}

fn resource(resource: &Resource) -> String {
    match &resource.name {
        Some(name) => format!("{} {name}", resource.kind),
        None => resource.kind.clone(),
    }
}

/// `holder/12×3 (page read)`.
pub(super) fn names(owners: &[Owner], options: &TableOptions) -> String {
    let shown = shown(owners.len(), OWNERS, options);
    let mut names: Vec<String> = owners[..shown].iter().map(owner).collect();
    if shown < owners.len() {
        names.push(format!("{} more", owners.len() - shown));
    }
    names.join(", ")
}

fn owner(owner: &Owner) -> String {
    let count = units::count(owner.count);
    let (Some(comm), Some(tid)) = (&owner.comm, owner.tid) else {
        return format!("not known×{count}");
    };
    let unsure = unsure(owner.certainty);
    match &owner.doing {
        Some(doing) => format!("{unsure}{comm}/{tid}×{count} ({doing})"),
        None => format!("{unsure}{comm}/{tid}×{count}"),
    }
}

/// Prints a sentence for each chain.
pub fn print_chains(
    out: &mut impl Write,
    report: &Report,
    options: &TableOptions,
) -> io::Result<()> {
    if report.chains.is_empty() {
        return Ok(());
    }
    heading(out, "Who waited for whom", options)?;
    let shown = shown(report.chains.len(), CHAINS, options);
    let mut grid = Grid::new([text("")]);
    for chain in &report.chains[..shown] {
        grid.row([Cell::text(sentence(chain))]);
    }
    let rest = report.chains.len() - shown;
    if rest > 0 {
        grid.quiet_row([Cell::text(format!("… {rest} more chains"))]);
    }
    grid.print(out, options)
}

/// `A/1 waited 3.00ms (mutex) for B/2, which waited 2.90ms (page read)`.
fn sentence(chain: &Chain) -> String {
    let Some((first, others)) = chain.links.split_first() else {
        return String::new();
    };
    let mut text = who(first);
    if chain.count > 1 {
        text.push_str(&format!(", {} times,", units::count(chain.count)));
    }
    text.push_str(&format!(
        " waited {}{}",
        units::time(first.waited_ns.unwrap_or(0)),
        at(first)
    ));
    for link in others {
        text.push_str(&format!(" for {}, which {}", who(link), did(link)));
    }
    match chain.end {
        ChainEnd::Cycle => text.push_str(" for one of these again"),
        ChainEnd::Length => text.push_str(" for others in turn"),
        ChainEnd::Complete => {}
    }
    text
}

fn who(link: &ChainLink) -> String {
    match link.tid {
        Some(tid) => format!("{}/{tid}", link.comm),
        None => link.comm.clone(),
    }
}

fn at(link: &ChainLink) -> String {
    match &link.label {
        Some(label) => format!(" ({label})"),
        None => String::new(),
    }
}

/// What a holder did during the wait. If it is not monitored: what it did when the wait began.
fn did(link: &ChainLink) -> String {
    match (link.waited_ns, &link.doing) {
        (Some(0), Some(doing)) if doing == "on CPU" => "was on CPU".to_string(),
        (Some(0), Some(doing)) if doing == "waiting for a CPU" => {
            "waited for a CPU at first".to_string()
        }
        (Some(0), _) => "did not sleep".to_string(),
        (Some(ns), _) => {
            let mostly = match link.label_ns {
                Some(label_ns) if label_ns < ns => "mostly ",
                _ => "",
            };
            match &link.label {
                Some(label) => format!("waited {} ({mostly}{label})", units::time(ns)),
                None => format!("waited {}", units::time(ns)),
            }
        }
        (None, Some(doing)) => format!("is not watched and at first was: {doing}"),
        (None, None) => "is not watched".to_string(),
    }
}

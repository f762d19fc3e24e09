//! Enrols running processes and their descendants.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

/// The most rounds. Each round finds the processes started by those that the round before has reached, so a few
/// are enough.
const ROUNDS: usize = 100;

/// Calls `enrol` for processes and, `with_children`, for all their descendants, until a round finds no new
/// thread, so that processes started meanwhile are included. `enrol` returns how many threads were new. An error
/// for one of `first` is returned; other processes may have ended meanwhile.
pub(crate) fn enrol_all(
    first: &[u32],
    with_children: bool,
    mut enrol: impl FnMut(u32) -> Result<u32>,
) -> Result<()> {
    for round in 0..ROUNDS {
        let mut new = 0;
        for pid in processes(first, with_children) {
            let is_named = round == 0 && first.contains(&pid);
            match enrol(pid) {
                Ok(threads) => new += threads,
                Err(error) if is_named => return Err(error),
                Err(_) => {}
            }
        }
        if new == 0 {
            break;
        }
    }
    Ok(())
}

/// The processes and, `with_children`, their current descendants.
pub(crate) fn processes(first: &[u32], with_children: bool) -> Vec<u32> {
    match with_children {
        true => descendants(first, &parents()),
        false => first.to_vec(),
    }
}

/// The processes and all their descendants, each once, parents first.
fn descendants(first: &[u32], parents: &[(u32, u32)]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, parent) in parents {
        children.entry(*parent).or_default().push(*pid);
    }
    let mut seen = BTreeSet::new();
    let mut found: Vec<u32> = first
        .iter()
        .copied()
        .filter(|pid| seen.insert(*pid))
        .collect();
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        let below = children.remove(pid).unwrap_or_default();
        found.extend(below.into_iter().filter(|pid| seen.insert(*pid)));
        at += 1;
    }
    found
}

/// Each existing process, and its parent.
fn parents() -> Vec<(u32, u32)> {
    let processes = procfs::process::all_processes().into_iter().flatten();
    let stats = processes.filter_map(|process| process.ok()?.stat().ok());
    stats
        .map(|stat| (stat.pid as u32, stat.ppid as u32))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_all_generations_and_each_process_once() {
        let parents = [
            (1, 0),
            (2, 0),
            (10, 1),
            (11, 10),
            (12, 10),
            (13, 12),
            (20, 2),
        ];
        assert_eq!(descendants(&[10], &parents), [10, 11, 12, 13]);
        assert_eq!(descendants(&[12, 10], &parents), [12, 10, 13, 11]);
        assert_eq!(descendants(&[20, 20], &parents), [20]);
        assert_eq!(
            descendants(&[99], &parents),
            [99],
            "it may just have started"
        );
        assert_eq!(
            descendants(&[1], &[(1, 1), (2, 1)]),
            [1, 2],
            "no process is its own child"
        );
    }

    #[test]
    fn rounds_go_on_until_nothing_is_new() {
        let mut news = vec![0, 0, 3, 1];
        let mut asked = 0;
        enrol_all(&[7], false, |pid| {
            assert_eq!(pid, 7);
            asked += 1;
            Ok(news.pop().unwrap())
        })
        .unwrap();
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_process_that_was_named_is_there_or_it_is_an_error() {
        let error = enrol_all(&[7], false, |_| anyhow::bail!("it has ended"));
        assert!(error.is_err());
    }

    #[test]
    fn children_that_start_meanwhile_are_reached() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep runs");
        let mut reached = BTreeSet::new();
        enrol_all(&[std::process::id()], true, |pid| {
            Ok(u32::from(reached.insert(pid)))
        })
        .unwrap();
        assert!(reached.contains(&child.id()));
        assert!(reached.contains(&std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

//! A note of a server's processes in its directory, so that they can be found if latlab was killed.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::leftover;
use crate::processes::{self, identity, members, Identity, Known, Scope};

const SCHEMA: &str = "latlab.server/1";
const NOTE: &str = "processes.json";
/// A thousand times the size of a note.
const NOTE_BYTES_MAX: u64 = 1 << 20;
/// A server gets a signal when its latlab is killed, and may be about to end.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Serialize, Deserialize)]
struct Note {
    schema: String,
    server: String,
    scope: Option<Scope>,
    /// Each leads its own process group.
    leaders: Vec<Identity>,
    /// All processes in these groups when the server had started.
    processes: Vec<Identity>,
}

/// The mark in the environment of all processes of a directory's server.
pub fn mark(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Writes the note about a server's processes, completely or not at all.
pub fn write(directory: &Path, server: &str, leaders: &[u32]) -> Result<()> {
    let note = Note {
        schema: SCHEMA.to_string(),
        server: server.to_string(),
        scope: Scope::own(),
        leaders: leaders.iter().filter_map(|pid| identity(*pid)).collect(),
        processes: leaders.iter().flat_map(|pid| members(*pid)).collect(),
    };
    let new = directory.join("processes.new");
    let written = fs::write(&new, serde_json::to_vec(&note)?);
    written
        .and_then(|()| fs::rename(&new, directory.join(NOTE)))
        .with_context(|| format!("cannot note the processes in {}", directory.display()))
}

/// `None` if there is no readable note, or it is from an earlier boot.
fn read(directory: &Path) -> Option<Note> {
    let file = crate::rows::plain_file(&directory.join(NOTE)).ok()?;
    let mut text = Vec::new();
    file.take(NOTE_BYTES_MAX).read_to_end(&mut text).ok()?;
    let note: Note = serde_json::from_slice(&text).ok()?;
    (note.schema == SCHEMA && note.scope.is_some() && note.scope == Scope::own()).then_some(note)
}

/// Ends the processes of a server whose latlab was killed, as far as they are certainly its own, and
/// removes its directory. Returns sentences about what was done.
pub fn clear(directory: &Path) -> Vec<String> {
    let note = read(directory);
    let server = note.as_ref().map_or("a server", |note| &note.server);
    let mark = mark(directory);
    let known = Known {
        identities: note.as_ref().map_or(&[], |note| &note.processes),
        leaders: note.as_ref().map_or(&[], |note| &note.leaders),
        mark: &mark,
    };
    let ended = processes::end(&known, PATIENCE);
    let numbers = |pids: &[u32]| {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        pids.join(", ")
    };
    let mut said = Vec::new();
    if !ended.killed.is_empty() {
        said.push(format!(
            "ended what a killed latlab had left running of {server}: process {}",
            numbers(&ended.killed)
        ));
    }
    for process in &ended.uncertain {
        said.push(format!(
            "{process} may be of {server}, which a killed latlab had left running, but that is not certain: it \
             was not ended"
        ));
    }
    if !ended.remaining.is_empty() {
        said.push(format!(
            "{}: process {} of {server} does not end; try again later",
            directory.display(),
            numbers(&ended.remaining)
        ));
        return said;
    }
    said.extend(leftover::remove(directory));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_of_this_boot_and_namespace() {
        let place = tempfile::tempdir().unwrap();
        write(place.path(), "a", &[std::process::id()]).unwrap();
        let mut note = read(place.path()).unwrap();
        assert_eq!(note.leaders, [identity(std::process::id()).unwrap()]);
        let path = place.path().join(NOTE);
        let text = fs::read_to_string(&path).unwrap();
        let own = std::process::id().to_string();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        for (part, other) in [
            (boot.trim(), "00000000-0000-0000-0000-000000000000"),
            ("pid:[", "pid:[9"),
            ("latlab.server/1", "latlab.server/2"),
            (own.as_str(), "\"x\""),
        ] {
            fs::write(&path, text.replace(part, other)).unwrap();
            assert!(read(place.path()).is_none(), "{part}");
        }
        note.scope = None;
        fs::write(&path, serde_json::to_vec(&note).unwrap()).unwrap();
        assert!(read(place.path()).is_none());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers and pods, by the names of their control groups; their own names, where a runtime keeps them in a file.
//! No runtime is asked.
//!
//! Docker, Podman, containerd, CRI-O and nerdctl give a container's group its id of 64 hexadecimal digits, alone or as
//! `RUNTIME-ID.scope`. Kubernetes gives a pod's group the pod's uid. LXC and systemd-nspawn use the container's name.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

/// The fewest characters by which an id is recognized.
const SHORTEST: usize = 4;

/// As much of an id as people use.
const SHOWN: usize = 12;

/// The id or name of the container or pod for which a group with this name (one component of a path) was made.
pub(super) fn id_in(component: &str) -> Option<String> {
    let plain = component
        .strip_suffix(".scope")
        .or(component.strip_suffix(".slice"))
        .unwrap_or(component);
    if let Some(name) = plain.strip_prefix("lxc.payload.") {
        return Some(name.to_string());
    }
    if let (Some(name), true) = (plain.strip_prefix("machine-"), plain != component) {
        return Some(name.replace("\\x2d", "-"));
    }
    // What `machinectl start` makes.
    let instance = component.strip_prefix("systemd-nspawn@");
    if let Some(name) = instance.and_then(|name| name.strip_suffix(".service")) {
        return Some(name.replace("\\x2d", "-"));
    }
    let (before, last) = plain.rsplit_once('-').unwrap_or(("", plain));
    // The process that watches over a container is not in it.
    if last.len() == 64 && is_hex(last) && !before.ends_with("conmon") {
        return Some(last.to_string());
    }
    let (_, uid) = plain.rsplit_once("pod").filter(|(before, _)| {
        before.is_empty() || (before.starts_with("kubepods") && before.ends_with('-'))
    })?;
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() >= 32 && uid.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    is_uid.then_some(uid)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What a person may mean by a container's name or the beginning of its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meant {
    /// Containers with this name, by id, and where each was found: `docker`, or a pod with its namespace.
    named: Vec<(String, String)>,
    wanted: String,
}

impl Meant {
    pub fn by(wanted: &str, root: &Path) -> Meant {
        let named = named_containers(root).into_iter();
        let named = named.filter(|one| one.name == wanted);
        Meant {
            named: named.map(|one| (one.id, one.origin)).collect(),
            wanted: wanted.to_string(),
        }
    }

    /// Whether this id is meant. A name is not taken for the beginning of another container's id.
    pub fn is(&self, id: &str) -> bool {
        if self.named.iter().any(|(named, _)| named == id) {
            return true;
        }
        let wanted = self.wanted.to_ascii_lowercase();
        let begins = wanted.len() >= SHORTEST && is_id_like(&wanted) && id.starts_with(&wanted);
        id.eq_ignore_ascii_case(&wanted) || (self.named.is_empty() && begins)
    }

    /// Fails if these, of the containers that run, are not one container or pod.
    pub fn require_one(&self, ids: &[String]) -> Result<()> {
        if self.named.is_empty() {
            // A pod's group contains those of its containers, but its id does not begin like theirs.
            if ids.len() > 1 {
                bail!(
                    "several containers begin with {}: {}",
                    self.wanted,
                    ids.join(", ")
                );
            }
            return Ok(());
        }
        let running = self.named.iter().filter(|(id, _)| ids.contains(id));
        let origins: BTreeSet<&str> = running.map(|(_, origin)| origin.as_str()).collect();
        if origins.len() > 1 {
            let origins: Vec<&str> = origins.into_iter().collect();
            bail!(
                "several containers are named {}, of {}: name one by its id, or a pod with its namespace",
                self.wanted,
                origins.join(" and ")
            );
        }
        Ok(())
    }
}

fn is_id_like(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// The container of a process with these control groups, as people name it: its name if a file tells it, otherwise
/// the beginning of its id.
pub fn container_of<'a>(paths: impl Iterator<Item = &'a str>) -> Option<String> {
    let id = paths.flat_map(|path| path.rsplit('/')).find_map(id_in)?;
    let named = NAMES.lock().unwrap_or_else(PoisonError::into_inner).of(&id);
    Some(match named {
        Some(name) => name,
        None if is_id_like(&id) => id.chars().take(SHOWN).collect(),
        None => id,
    })
}

/// Each process that comes asks for its container's name, so the files are not read each time.
static NAMES: Mutex<Names> = Mutex::new(Names {
    by_id: None,
    read: None,
});

struct Names {
    by_id: Option<HashMap<String, String>>,
    read: Option<Instant>,
}

impl Names {
    /// For an id that is not known, the files are read again, but not at once.
    const AGAIN: Duration = Duration::from_secs(1);
    /// Containers may be given other names.
    const OLD: Duration = Duration::from_secs(60);

    fn of(&mut self, id: &str) -> Option<String> {
        let age = self.read.map_or(Duration::MAX, |read| read.elapsed());
        let known = self.by_id.as_ref().and_then(|names| names.get(id).cloned());
        if age > Self::OLD || (known.is_none() && age > Self::AGAIN) {
            let mut names = HashMap::new();
            for one in named_containers(Path::new("/")) {
                names.entry(one.id).or_insert(one.name);
            }
            let found = names.get(id).cloned();
            (self.by_id, self.read) = (Some(names), Some(Instant::now()));
            return found;
        }
        known
    }
}

/// A container as a runtime's file names it.
struct Named {
    name: String,
    id: String,
    /// The runtime, or the pod with its namespace.
    origin: String,
}

impl Named {
    fn new(name: &str, id: &str, origin: &str) -> Named {
        Named {
            name: name.to_string(),
            id: id.to_string(),
            origin: origin.to_string(),
        }
    }
}

/// From the files of the runtimes.
fn named_containers(root: &Path) -> Vec<Named> {
    let mut found = of_docker(root);
    found.extend(of_podman(root));
    found.extend(of_nerdctl(root));
    found.extend(of_kubernetes(root));
    found
}

fn entries(directory: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(directory).into_iter().flatten().flatten()
}

fn json(file: &Path) -> Option<serde_json::Value> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn of_docker(root: &Path) -> Vec<Named> {
    let named = entries(&root.join("var/lib/docker/containers")).filter_map(|entry| {
        let about = json(&entry.path().join("config.v2.json"))?;
        let name = about["Name"].as_str()?.trim_start_matches('/');
        Some(Named::new(name, entry.file_name().to_str()?, "docker"))
    });
    named.collect()
}

/// Root's, and those of this user.
fn of_podman(root: &Path) -> Vec<Named> {
    let own = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share"));
    let own = own
        .or_else(home)
        .map(|data| data.join("containers/storage"));
    let mut storages = vec![root.join("var/lib/containers/storage")];
    storages.extend(own.filter(|_| root == Path::new("/")));
    storages
        .iter()
        .flat_map(|storage| of_storage(storage))
        .collect()
}

fn of_storage(storage: &Path) -> Vec<Named> {
    let mut found = Vec::new();
    for driver in ["overlay", "vfs", "btrfs", "zfs"] {
        let list = json(&storage.join(format!("{driver}-containers/containers.json")));
        for about in list.iter().filter_map(|list| list.as_array()).flatten() {
            let Some(id) = about["id"].as_str() else {
                continue;
            };
            let names = about["names"].as_array().into_iter().flatten();
            found.extend(names.filter_map(|name| Some(Named::new(name.as_str()?, id, "podman"))));
        }
    }
    found
}

/// `/var/lib/nerdctl/HASH/names/NAMESPACE/NAME` contains the id.
fn of_nerdctl(root: &Path) -> Vec<Named> {
    let mut found = Vec::new();
    for place in entries(&root.join("var/lib/nerdctl")) {
        for namespace in entries(&place.path().join("names")) {
            for name in entries(&namespace.path()) {
                let id = fs::read_to_string(name.path()).unwrap_or_default();
                let origin = format!("nerdctl ({})", namespace.file_name().to_string_lossy());
                if let (Ok(name), false) = (name.file_name().into_string(), id.trim().is_empty()) {
                    found.push(Named::new(&name, id.trim(), &origin));
                }
            }
        }
    }
    found
}

/// `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`. A pod's name stands for all of its containers.
fn of_kubernetes(root: &Path) -> Vec<Named> {
    let mut found = Vec::new();
    for entry in entries(&root.join("var/log/containers")) {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let parts = name
            .strip_suffix(".log")
            .and_then(|name| name.rsplit_once('-'));
        let Some((names, id)) = parts.filter(|(_, id)| id.len() == 64) else {
            continue;
        };
        let [pod, namespace, container] = names.splitn(3, '_').collect::<Vec<_>>()[..] else {
            continue;
        };
        for name in [
            format!("{namespace}/{pod}/{container}"),
            format!("{namespace}/{pod}"),
            pod.to_string(),
        ] {
            found.push(Named::new(&name, id, &format!("the pod {namespace}/{pod}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c1b2d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcd";

    #[test]
    fn groups_of_all_runtimes_are_recognized() {
        for component in [
            ID.to_string(),
            format!("docker-{ID}.scope"),
            format!("libpod-{ID}.scope"),
            format!("cri-containerd-{ID}.scope"),
            format!("crio-{ID}.scope"),
            format!("nerdctl-{ID}.scope"),
        ] {
            assert_eq!(id_in(&component).as_deref(), Some(ID), "{component}");
        }
        let uid = "0a1b2c3d-0000-4444-8888-123456789abc";
        let in_slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
        assert_eq!(id_in(&in_slice).as_deref(), Some(uid));
        assert_eq!(id_in(&format!("pod{uid}")).as_deref(), Some(uid));
        assert_eq!(id_in("lxc.payload.web").as_deref(), Some("web"));
        assert_eq!(id_in("machine-web\\x2d1.scope").as_deref(), Some("web-1"));
        let started = id_in("systemd-nspawn@web\\x2d1.service");
        assert_eq!(started.as_deref(), Some("web-1"));
        for other in [
            "system.slice",
            "nginx.service",
            "podman",
            "tripod.slice",
            "kubepods.slice",
            "docker",
        ] {
            assert_eq!(id_in(other), None, "{other}");
        }
        assert_eq!(id_in(&format!("libpod-conmon-{ID}.scope")), None);
    }

    #[test]
    fn an_id_may_be_cut_short_but_not_to_nothing() {
        let nowhere = Path::new("/nonexistent");
        let meant = |text: &str| Meant::by(text, nowhere).is(ID);
        assert!(meant(ID) && meant("3f2a9c1b2d4e") && meant("3F2A"));
        assert!(!meant("3f2") && !meant("") && !meant("9c1b"));
        assert!(Meant::by("web", nowhere).is("web"));
        assert!(!Meant::by("webs", nowhere).is("website"), "a name is whole");
    }

    #[test]
    fn names_are_in_the_files_of_the_runtimes() {
        let root = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file(
            &format!("var/lib/docker/containers/{ID}/config.v2.json"),
            r#"{"Name":"/web"}"#,
        );
        file("var/lib/docker/containers/bad/config.v2.json", "{");
        file(
            "var/lib/containers/storage/overlay-containers/containers.json",
            r#"[{"id":"aaaa","names":["db","x"]},{"names":["no id"]}]"#,
        );
        file("var/lib/nerdctl/1935/names/default/cache", "bbbb\n");
        let other = ID.replace('3', "4");
        for (pod, namespace, id) in [("api-7", "prod", ID), ("3f2a", "prod", &other)] {
            file(
                &format!("var/log/containers/{pod}_{namespace}_main-{id}.log"),
                "",
            );
        }
        let meant = |name: &str| Meant::by(name, root.path());
        for (name, id) in [
            ("web", ID),
            ("db", "aaaa"),
            ("cache", "bbbb"),
            ("api-7", ID),
            ("prod/api-7/main", ID),
        ] {
            assert!(meant(name).is(id) && !meant(name).is("cccc"), "{name}");
        }
        assert!(meant("none").is("none"));
        // A pod has this name, and another container's id begins with it.
        assert!(meant("3f2a").is(&other) && !meant("3f2a").is(ID));
        assert!(meant("3f2a9").is(ID));
    }

    #[test]
    fn a_name_of_several_containers_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let logs = root.path().join("var/log/containers");
        fs::create_dir_all(&logs).unwrap();
        let ids = ['1', '2', '3'].map(|digit| ID.replace('3', &digit.to_string()));
        for (namespace, container, id) in [
            ("prod", "main", &ids[0]),
            ("prod", "proxy", &ids[1]),
            ("dev", "main", &ids[2]),
        ] {
            fs::write(
                logs.join(format!("redis-0_{namespace}_{container}-{id}.log")),
                "",
            )
            .unwrap();
        }
        let meant = Meant::by("redis-0", root.path());
        let error = meant.require_one(&ids).unwrap_err().to_string();
        assert!(
            error.contains("the pod dev/redis-0 and the pod prod/redis-0"),
            "{error}"
        );
        // All containers of one pod are meant, and the other one does not run.
        meant.require_one(&ids[..2]).unwrap();
        let meant = Meant::by("3f2a", root.path());
        assert!(meant.require_one(&ids).is_err());
    }
}

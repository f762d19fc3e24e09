// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers and pods, by the names of their control groups; their own names, where a runtime keeps them in a file.
//! No runtime is asked.
//!
//! Docker, Podman, containerd, CRI-O and nerdctl give a container's group its id of 64 hexadecimal digits, alone or as
//! `RUNTIME-ID.scope`. Kubernetes gives a pod's group the pod's uid. LXC and systemd-nspawn use the container's name.

use std::fs;
use std::path::Path;

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

/// The ids that a person may mean: those of containers with this name, and the text itself.
pub(super) fn meant_by(wanted: &str, root: &Path) -> Vec<String> {
    let named = named_containers(root)
        .into_iter()
        .filter(|(name, _)| name == wanted)
        .map(|(_, id)| id);
    named.chain([wanted.to_string()]).collect()
}

/// Whether an id is the one that is meant, or begins like it.
pub(super) fn is_meant(id: &str, meant: &[String]) -> bool {
    meant.iter().any(|wanted| {
        let wanted = wanted.to_ascii_lowercase();
        id.eq_ignore_ascii_case(&wanted)
            || (wanted.len() >= SHORTEST && is_id_like(&wanted) && id.starts_with(&wanted))
    })
}

fn is_id_like(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// The container of a process with these control groups, as people name it: its name if a file tells it, otherwise
/// the beginning of its id.
pub fn container_of<'a>(paths: impl Iterator<Item = &'a str>) -> Option<String> {
    let id = paths.flat_map(|path| path.rsplit('/')).find_map(id_in)?;
    let known = named_containers(Path::new("/"));
    let name = known.into_iter().find(|(_, known)| *known == id);
    Some(match name {
        Some((name, _)) => name,
        None if is_id_like(&id) => id.chars().take(SHOWN).collect(),
        None => id,
    })
}

/// Names and ids, from the files of the runtimes.
fn named_containers(root: &Path) -> Vec<(String, String)> {
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

fn of_docker(root: &Path) -> Vec<(String, String)> {
    let named = entries(&root.join("var/lib/docker/containers")).filter_map(|entry| {
        let about = json(&entry.path().join("config.v2.json"))?;
        let name = about["Name"].as_str()?.trim_start_matches('/').to_string();
        Some((name, entry.file_name().into_string().ok()?))
    });
    named.collect()
}

fn of_podman(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for driver in ["overlay", "vfs", "btrfs", "zfs"] {
        let file = format!("var/lib/containers/storage/{driver}-containers/containers.json");
        let list = json(&root.join(file));
        for about in list.iter().filter_map(|list| list.as_array()).flatten() {
            let Some(id) = about["id"].as_str() else {
                continue;
            };
            let names = about["names"].as_array().into_iter().flatten();
            found.extend(
                names.filter_map(|name| Some((name.as_str()?.to_string(), id.to_string()))),
            );
        }
    }
    found
}

/// `/var/lib/nerdctl/HASH/names/NAMESPACE/NAME` contains the id.
fn of_nerdctl(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for place in entries(&root.join("var/lib/nerdctl")) {
        for namespace in entries(&place.path().join("names")) {
            for name in entries(&namespace.path()) {
                let id = fs::read_to_string(name.path()).unwrap_or_default();
                if let (Ok(name), false) = (name.file_name().into_string(), id.trim().is_empty()) {
                    found.push((name, id.trim().to_string()));
                }
            }
        }
    }
    found
}

/// `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`. A pod's name stands for all of its containers.
fn of_kubernetes(root: &Path) -> Vec<(String, String)> {
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
            found.push((name, id.to_string()));
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
        let meant = |text: &str| is_meant(ID, &[text.to_string()]);
        assert!(meant(ID) && meant("3f2a9c1b2d4e") && meant("3F2A"));
        assert!(!meant("3f2") && !meant("") && !meant("9c1b"));
        assert!(is_meant("web", &["web".to_string()]));
        assert!(
            !is_meant("website", &["webs".to_string()]),
            "a name is whole"
        );
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
        file(&format!("var/log/containers/api-7_prod_main-{ID}.log"), "");
        let meant = |name: &str| meant_by(name, root.path());
        assert_eq!(meant("web"), [ID, "web"]);
        assert_eq!(meant("db"), ["aaaa", "db"]);
        assert_eq!(meant("cache"), ["bbbb", "cache"]);
        assert_eq!(meant("api-7"), [ID, "api-7"]);
        assert_eq!(meant("prod/api-7/main"), [ID, "prod/api-7/main"]);
        assert_eq!(meant("none"), ["none"]);
    }
}

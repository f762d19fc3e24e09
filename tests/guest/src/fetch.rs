// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches kernels from Debian through apt, with separate lists and directories: nothing is
//! installed, and the machine's own apt is not affected by the other suites.

use std::ffi::OsStr;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::bail;
use anyhow::Context;
use anyhow::Result;

use crate::kernels::Kernel;

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel on this machine.
#[derive(Debug)]
pub struct KernelFiles {
    /// `uname -r`.
    pub release: String,
    pub image: PathBuf,
    /// The directory of its modules.
    pub modules: PathBuf,
}

/// The kernel from the cache; or from Debian if it is not cached, or `again` is set.
pub fn fetch(kernel: &Kernel, cache: &Path, again: bool) -> Result<KernelFiles> {
    let place = cache.join(kernel.name);
    // Another process may be fetching it. The lock ends with the file.
    let lock = std::fs::File::create(cache.join(format!("{}.lock", kernel.name)))?;
    lock.lock()
        .context("cannot wait for the other process that fetches it")?;
    if !again {
        if let Some(files) = find(&place)? {
            return Ok(files);
        }
    }
    eprintln!("{}: fetching it from Debian", kernel.name);
    // The directory is renamed when it is complete, so the cache has only complete kernels.
    let scratch = tempfile::Builder::new()
        .prefix("fetch-")
        .tempdir_in(cache)?;
    let apt = Apt::new(scratch.path(), kernel.suites)?;
    apt.run("apt-get", ["-qq", "update"])?;
    let names = apt.run("apt-cache", ["pkgnames", "linux-"])?;
    let Some(release) = kernel.newest(names.lines()) else {
        bail!(
            "{} has no cloud kernel {}",
            kernel.suites.join(", "),
            kernel.name
        );
    };
    let unpacked = scratch.path().join("unpacked");
    for package in packages_of(release, &names) {
        apt.run("apt-get", ["-qq", "download", &package])?;
    }
    for entry in std::fs::read_dir(scratch.path())? {
        let path = entry?.path();
        if path.extension() == Some(OsStr::new("deb")) {
            output(Command::new("dpkg").arg("-x").args([&path, &unpacked]))?;
        }
    }
    if find(&unpacked)?.is_none() {
        bail!("the packages of {release} have no kernel in them");
    }
    if place.exists() {
        std::fs::remove_dir_all(&place)?;
    }
    std::fs::rename(&unpacked, &place)?;
    find(&place)?.context("the kernel vanished from the cache")
}

/// The packages of one kernel: in later suites the image and its modules are separate packages.
fn packages_of(release: &str, names: &str) -> Vec<String> {
    ["image", "binary", "modules"]
        .iter()
        .map(|part| format!("linux-{part}-{release}"))
        .filter(|package| names.lines().any(|name| name == package))
        .collect()
}

/// The kernel that was unpacked there.
fn find(place: &Path) -> Result<Option<KernelFiles>> {
    for directory in ["lib/modules", "usr/lib/modules"] {
        let directory = place.join(directory);
        let Ok(mut entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        let Some(entry) = entries.next() else {
            continue;
        };
        let modules = entry?.path();
        let release = modules
            .file_name()
            .and_then(OsStr::to_str)
            .context("a release is text")?
            .to_string();
        let images = [
            place.join(format!("boot/vmlinuz-{release}")),
            modules.join("vmlinuz"),
        ];
        if let Some(image) = images.into_iter().find(|image| image.exists()) {
            return Ok(Some(KernelFiles {
                release,
                image,
                modules,
            }));
        }
    }
    Ok(None)
}

/// An apt with its own configuration, except for the machine's network settings.
struct Apt<'a> {
    directory: &'a Path,
    options: Vec<String>,
}

impl<'a> Apt<'a> {
    fn new(directory: &'a Path, suites: &[&str]) -> Result<Apt<'a>> {
        for made in ["lists/partial", "cache/archives/partial", "parts"] {
            std::fs::create_dir_all(directory.join(made))?;
        }
        let mirror = mirror()?;
        let lines = suites
            .iter()
            .map(|suite| format!("deb [arch=amd64 signed-by={KEYS}] {mirror} {suite} main\n"));
        std::fs::write(directory.join("sources.list"), lines.collect::<String>())?;
        std::fs::write(directory.join("status"), "")?;
        let own = |option: &str, name: &str| format!("{option}={}", directory.join(name).display());
        Ok(Apt {
            directory,
            options: vec![
                own("Dir::Etc::SourceList", "sources.list"),
                own("Dir::Etc::SourceParts", "parts"),
                own("Dir::State::Lists", "lists"),
                own("Dir::State::status", "status"),
                own("Dir::Cache", "cache"),
                "Acquire::Languages=none".to_string(),
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_string(),
                // The sandbox user may not write to the cache directory.
                "APT::Sandbox::User=root".to_string(),
            ],
        })
    }

    fn run<const N: usize>(&self, command: &str, arguments: [&str; N]) -> Result<String> {
        let options = self.options.iter().flat_map(|option| ["-o", option]);
        output(
            Command::new(command)
                .args(options)
                .args(arguments)
                .current_dir(self.directory),
        )
    }
}

/// The mirror that this machine uses; Debian's own if apt has none configured.
fn mirror() -> Result<String> {
    let sites = output(Command::new("apt-get").args(["indextargets", "--format", "$(SITE)"]))?;
    Ok(mirror_among(&sites).to_string())
}

fn mirror_among(sites: &str) -> &str {
    sites
        .lines()
        .find(|site| site.trim_end_matches('/').ends_with("/debian"))
        .unwrap_or("http://deb.debian.org/debian")
}

/// Runs a command, and returns its output. If it fails, its error output is the reason.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    if !done.status.success() {
        bail!(
            "{name} failed: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_one_package_or_three() {
        let names = "linux-image-7.3-cloud-amd64\nlinux-modules-7.3-cloud-amd64\n\
                     linux-binary-7.3-cloud-amd64\nlinux-image-6.1-cloud-amd64\n\
                     linux-modules-7.3-cloud-amd64-extra\n";
        assert_eq!(
            packages_of("6.1-cloud-amd64", names),
            ["linux-image-6.1-cloud-amd64"]
        );
        assert_eq!(packages_of("7.3-cloud-amd64", names).len(), 3);
    }

    #[test]
    fn the_mirror_is_the_machines_own() {
        let sites = "https://example.org/tools\nhttp://mirror.example.org/debian/\n";
        assert_eq!(mirror_among(sites), "http://mirror.example.org/debian/");
        assert!(mirror_among("").ends_with("/debian"));
    }
}

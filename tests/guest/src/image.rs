// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initramfs of a guest: it mounts the host's file system as the root, and creates a disk of the
//! guest's own for tests that wait for one.

use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;

use crate::fetch::KernelFiles;

const BUSYBOX: &str = "/bin/busybox";

/// Modules that are needed to reach the root file system, and those of devices and file systems that
/// tests make, in the order of their dependencies. A module that is built into a kernel has no file.
const MODULES: [&str; 17] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "fuse",
    "virtiofs",
    "configfs",
    "null_blk",
    "loop",
    "xor",
    "raid6_pq",
    "libcrc32c",
    "zstd_compress",
    "blake2b_generic",
    "btrfs",
];

/// A disk in the guest's memory that a timer in the guest makes slow. A disk of the emulator would
/// answer whenever the host gets to it, before or after the guest has gone to sleep for it.
const DISK: &str = "gb=1 memory_backed=1 irqmode=2 completion_nsec=2000000";

/// The guest's first program. The host's root stays read-only: `inside.rs` provides directories that
/// tests can write to.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
for module in /modules/*; do
	options=
	case $module in *-null_blk.ko) options='@DISK@' ;; esac
	[ ! -e "$module" ] || insmod "$module" $options
done
mount -t virtiofs -o ro root /root || exit 1
mount --move /dev /root/dev
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts none /root/dev/pts
mount -t proc none /root/proc
mount -t sysfs none /root/sys
mount -t tracefs none /root/sys/kernel/tracing
mount -t bpf -o mode=700 none /root/sys/fs/bpf
mount -t securityfs none /root/sys/kernel/security
mount -t cgroup2 none /root/sys/fs/cgroup
ip link set lo up
hostname guest
umount /proc
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec switch_root -c /dev/ttyS1 /root @SELF@ --inside @PLAN@
"#;

/// Writes the initramfs.
pub fn initramfs(
    directory: &Path,
    kernel: &KernelFiles,
    program: &Path,
    plan: &Path,
) -> Result<PathBuf> {
    let tree = directory.join("initramfs");
    for made in ["bin", "dev", "proc", "root", "modules"] {
        fs::create_dir_all(tree.join(made))?;
    }
    fs::copy(BUSYBOX, tree.join("bin/busybox")).context("busybox-static is needed")?;
    let init = tree.join("init");
    let text = INIT
        .replace("@SELF@", &program.display().to_string())
        .replace("@PLAN@", &plan.display().to_string())
        .replace("@DISK@", DISK);
    fs::write(&init, text)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let files = files_below(&kernel.modules)?;
    for (place, name) in MODULES.iter().enumerate() {
        if let Some(file) = files.iter().find(|file| is_module(file, name)) {
            unpack(file, &tree.join(format!("modules/{place:02}-{name}.ko")))?;
        }
    }

    let mut names = String::new();
    for file in files_below(&tree)? {
        names += &format!("{}\n", file.strip_prefix(&tree)?.display());
    }
    let list = directory.join("initramfs.list");
    fs::write(&list, names)?;
    let archive = directory.join("initramfs.cpio");
    let status = Command::new("cpio")
        .args(["--quiet", "-o", "-H", "newc"])
        .current_dir(&tree)
        .stdin(File::open(&list)?)
        .stdout(File::create(&archive)?)
        .status()
        .context("cannot run cpio")?;
    anyhow::ensure!(status.success(), "cpio failed: {status}");
    Ok(archive)
}

/// Directories come before their contents.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read the directory {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        found.push(entry.path());
        if entry.file_type()?.is_dir() {
            found.extend(files_below(&entry.path())?);
        }
    }
    Ok(found)
}

fn is_module(file: &Path, name: &str) -> bool {
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    file == format!("{name}.ko") || file == format!("{name}.ko.xz")
}

fn unpack(module: &Path, to: &Path) -> Result<()> {
    if module
        .extension()
        .is_some_and(|extension| extension == "xz")
    {
        let status = Command::new("xz")
            .args(["-d", "-c"])
            .arg(module)
            .stdin(Stdio::null())
            .stdout(File::create(to)?)
            .status()
            .context("cannot run xz")?;
        anyhow::ensure!(status.success(), "xz failed on {}", module.display());
    } else {
        fs::copy(module, to)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_whole_name() {
        assert!(is_module(Path::new("/m/virtio.ko"), "virtio"));
        assert!(is_module(Path::new("/m/virtio.ko.xz"), "virtio"));
        assert!(!is_module(Path::new("/m/virtio_ring.ko"), "virtio"));
        assert!(!is_module(Path::new("/m/virtio.ko.sig"), "virtio"));
    }
}

//! Files on a slow disk. Dropping the value removes it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use latlab::fileset::{self, FileSet};
use latlab::{leftover, signals};
use latlab_disk::{check, median, Disk, Parameters};

use crate::progress::Progress;

/// Default directory for studies.
pub const PLACE: &str = "/var/tmp";

/// The disk's time for a request that begins where the last one ended, as in `latlab disk up`.
const SEQUENTIAL: Duration = Duration::from_micros(100);
const BYTES_PER_SECOND: u64 = 100_000_000;
const READ_AHEAD_KIB: u32 = 128;

/// Prefix of places' names; the number of the process that made them follows.
const PREFIX: &str = "latlab-study-";
/// Prefix of disks' names.
const DISK: &str = "study-";

pub struct Place {
    /// `None` while the disk is taken down.
    disk: Option<Disk>,
    pub cold_open_ns: u64,
    pub cold_read_ns: u64,
    // Dropped last, when nothing is mounted in it any more.
    directory: tempfile::TempDir,
    /// Lock on the directory. A directory without a lock was left by a killed latlab.
    _lock: fs::File,
}

/// How fast the disk is.
pub struct Speed {
    /// What a request takes.
    pub service: Duration,
    /// What a request takes that begins where the last one ended.
    pub sequential: Duration,
    pub depth: u32,
}

impl Place {
    /// Creates a file set, puts it on a disk, and checks that it is slow.
    pub fn make(parent: &Path, set: FileSet, service: Duration, depth: u32) -> Result<Place> {
        let speed = Speed {
            service,
            sequential: SEQUENTIAL.min(service),
            depth,
        };
        Place::with(parent, set.bytes(), speed, |files| {
            let progress = Progress::bytes(set.bytes());
            fileset::create(files, set, |done| progress.set(done, ""))?;
            progress.end();
            Ok(())
        })
    }

    /// The same for other files, which `create` writes into a directory.
    pub fn with(
        parent: &Path,
        bytes: u64,
        speed: Speed,
        create: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Place> {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let parameters = Parameters {
            service_us: us(speed.service),
            sequential_us: us(speed.sequential),
            bytes_per_second: BYTES_PER_SECOND,
            depth: speed.depth,
        };
        parameters.check()?;
        leftover::say(&remove_left(parent));
        let directory = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in(parent)
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        let lock = fs::File::open(directory.path())?;
        let _ = lock.try_lock();
        // Servers' workers do not run as root.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        kit_console::say!(
            "latlab: making {} of files, and a disk for them, in {}",
            latlab::units::bytes(bytes),
            directory.path().display()
        );
        let (files, image) = (
            directory.path().join("files"),
            directory.path().join("image"),
        );
        create(&files)?;
        signals::check()?;
        Disk::make_image(&image, &files)?;
        fs::remove_dir_all(&files)?;
        let mount = directory.path().join("disk");
        fs::create_dir(&mount)?;
        let name = format!("{DISK}{}", std::process::id());
        let disk = Disk::up(&name, &image, true, &mount, parameters, READ_AHEAD_KIB)?;
        // From here on, dropping the value takes it down.
        let mut place = Place {
            disk: Some(disk),
            cold_open_ns: 0,
            cold_read_ns: 0,
            directory,
            _lock: lock,
        };
        let checked = check(place.disk()?)?;
        checked.require_slow()?;
        place.cold_open_ns = median(&checked.cold_open_ns);
        place.cold_read_ns = median(&checked.cold_read_ns);
        Ok(place)
    }

    fn disk(&self) -> Result<&Disk> {
        self.disk.as_ref().context("the disk was taken down")
    }

    pub fn files(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    pub fn service_us(&self) -> u64 {
        self.disk
            .as_ref()
            .map_or(0, |disk| disk.parameters.service_us)
    }

    /// Drops the files from the page cache.
    pub fn cool(&self) -> Result<()> {
        self.disk()?.cool()
    }

    pub fn at_full_speed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.disk()?.at_full_speed(work)
    }

    /// Number of reads from the disk so far.
    pub fn reads(&self) -> Result<u64> {
        let status = self.disk()?.status()?;
        status["served"]
            .as_u64()
            .context("the disk does not say how often it was read")
    }
}

/// Takes down the disks of killed studies, and removes what they have left in a place. Returns sentences
/// about what was done.
pub fn remove_left(parent: &Path) -> Vec<String> {
    let mut said = Vec::new();
    // A disk knows its mount point, wherever its study was made.
    let disks = Disk::all().unwrap_or_default();
    let of_studies = disks.into_iter().filter(|disk| disk.name.starts_with(DISK));
    for disk in of_studies {
        let directory = disk.mount_point.parent().map(Path::to_path_buf);
        let Some(directory) = directory.filter(|directory| is_left(directory)) else {
            continue;
        };
        let name = disk.name.clone();
        match disk.down(true) {
            Ok(()) => {
                said.push(format!("took down the disk {name}, which a killed latlab had left"));
                said.extend(leftover::remove(&directory));
            }
            Err(error) => said.push(format!(
                "{error:#}; `latlab disk down {name} --force` takes down the disk, which a killed latlab had left"
            )),
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for directory in leftover::abandoned(parent, &[PREFIX], Path::to_path_buf) {
        // Mounts that are still there are reported above.
        if !mounts.contains(&*directory.to_string_lossy()) {
            said.extend(leftover::remove(&directory));
        }
    }
    said
}

/// Whether a directory belongs to a study that is no longer running.
fn is_left(directory: &Path) -> bool {
    directory.parent().is_some_and(|parent| {
        leftover::abandoned(parent, &[PREFIX], Path::to_path_buf)
            .iter()
            .any(|left| left == directory)
    })
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(disk) = self.disk.take() else {
            return;
        };
        let name = disk.name.clone();
        if let Err(error) = disk.down(true) {
            kit_console::say!(
                "latlab: {error:#}; `latlab disk down {name} --force` takes the disk down"
            );
        }
    }
}

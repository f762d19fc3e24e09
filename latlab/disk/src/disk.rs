//! Sets up disks and takes them down, in whatever state they are.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use nix::mount::{mount, umount2, MntFlags, MsFlags};
use serde::{Deserialize, Serialize};

use crate::daemon::{IMAGE, PARAMETERS};
use crate::model::Parameters;

/// Notes about running disks: they outlive the process that set up the disk, but not a reboot.
const STATE: &str = "/run/latlab/disks";

/// Space in an image in addition to the files: inodes, directories, and what ext4 needs for itself.
const SPARE_BYTES: u64 = 64 << 20;

/// A running disk, or what is left of one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Disk {
    pub name: String,
    pub image: PathBuf,
    pub mount_point: PathBuf,
    /// The process that serves the image, and its start time, because its number may be reused.
    pub served_by: u32,
    pub served_since: u64,
    pub loop_device: Option<PathBuf>,
    pub parameters: Parameters,
    pub read_ahead_kib: u32,
    /// Whether the image is removed together with the disk.
    pub owns_image: bool,
}

impl Disk {
    /// Makes an image from a directory's files.
    pub fn make_image(image: &Path, from: &Path) -> Result<()> {
        let (bytes, files) = size_of(from)?;
        // mkfs.ext4 is told to reserve nothing for root and to create no journal.
        let size = bytes + bytes / 10 + files * 512 + SPARE_BYTES;
        let file = fs::File::create(image)
            .with_context(|| format!("cannot make the image {}", image.display()))?;
        file.set_len(size)?;
        drop(file);
        let made = tool(
            Command::new("mkfs.ext4")
                .args(["-q", "-F", "-m", "0", "-O", "^has_journal", "-b", "4096"])
                .args(["-N", &(files + files / 8 + 64).to_string(), "-d"])
                .arg(from)
                .arg(image),
        );
        if made.is_err() {
            let _ = fs::remove_file(image);
        }
        made.map(drop)
    }

    /// Serves an image and mounts it. If a step fails, the previous ones are undone.
    pub fn up(
        name: &str,
        image: &Path,
        owns_image: bool,
        mount_point: &Path,
        parameters: Parameters,
        read_ahead_kib: u32,
    ) -> Result<Disk> {
        parameters.check()?;
        check_name(name)?;
        ensure!(
            !state_of(name).exists(),
            "there is a disk {name} already: `latlab disk down {name}` takes it down"
        );
        let mut disk = Disk {
            name: name.into(),
            image: image
                .canonicalize()
                .with_context(|| format!("no image {}", image.display()))?,
            mount_point: mount_point
                .canonicalize()
                .with_context(|| format!("no directory {}", mount_point.display()))?,
            served_by: 0,
            served_since: 0,
            loop_device: None,
            parameters,
            read_ahead_kib,
            owns_image,
        };
        fs::create_dir_all(disk.served_at())
            .with_context(|| format!("cannot make {}", disk.served_at().display()))?;
        if let Err(error) = disk.put_up() {
            let left = disk.clone().down(true);
            return Err(match left {
                Ok(()) => error,
                Err(left) => error.context(format!("and it cannot be taken down: {left:#}")),
            });
        }
        Ok(disk)
    }

    fn put_up(&mut self) -> Result<()> {
        self.save()?;
        self.serve()?;
        self.save()?;
        let image = self.served_at().join(IMAGE);
        let device = tool(
            Command::new("losetup")
                .args(["--find", "--show", "--read-only", "--direct-io=on"])
                .arg(&image),
        )?;
        let device = PathBuf::from(device.trim());
        self.loop_device = Some(device.clone());
        self.save()?;
        tool(
            Command::new("blockdev")
                .args(["--setra", &(u64::from(self.read_ahead_kib) * 2).to_string()])
                .arg(&device),
        )?;
        self.mount()
    }

    /// Starts the process at full speed, because mounting reads a lot.
    fn serve(&mut self) -> Result<()> {
        let mut child = Command::new("/proc/self/exe");
        child
            .arg0("latlab")
            .args(["disk", "serve"])
            .arg(&self.image)
            .arg(self.served_at())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A process group of its own: Ctrl-C at the terminal does not end it.
            .process_group(0);
        let mut child = child.spawn().context("cannot start the disk's process")?;
        self.served_by = child.id();
        self.served_since = started(child.id()).unwrap_or(0);
        let parameters = self.served_at().join(PARAMETERS);
        let begin = Instant::now();
        while !parameters.exists() {
            if child.try_wait()?.is_some() {
                let said = std::io::read_to_string(child.stderr.take().context("no output")?)?;
                bail!("the disk's process ended: {}", said.trim());
            }
            ensure!(
                begin.elapsed() < Duration::from_secs(20),
                "the disk's process did not begin to serve within 20 s"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn mount(&self) -> Result<()> {
        let device = self.loop_device.as_deref().context("no loop device")?;
        self.set_speed(Parameters::FAST)?;
        mount(
            Some(device),
            &self.mount_point,
            Some("ext4"),
            MsFlags::MS_RDONLY | MsFlags::MS_NOATIME | MsFlags::MS_NODEV | MsFlags::MS_NOSUID,
            Some("noload"),
        )
        .with_context(|| {
            format!(
                "cannot mount {} on {}: is it an ext4 image?",
                self.image.display(),
                self.mount_point.display()
            )
        })?;
        self.set_speed(self.parameters)
    }

    /// Changes the speed of a running disk.
    pub fn set(&mut self, parameters: Parameters) -> Result<()> {
        parameters.check()?;
        self.set_speed(parameters)?;
        self.parameters = parameters;
        self.save()
    }

    fn set_speed(&self, parameters: Parameters) -> Result<()> {
        let path = self.served_at().join(PARAMETERS);
        let file = fs::OpenOptions::new().write(true).open(&path);
        file.and_then(|file| file.write_all_at(&serde_json::to_vec(&parameters)?, 0))
            .with_context(|| format!("the disk {} does not answer", self.name))
    }

    /// Does work that need not wait for the disk.
    pub fn at_full_speed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.set_speed(Parameters::FAST)?;
        let done = work();
        self.set_speed(self.parameters)?;
        done
    }

    /// The status reported by the serving process.
    pub fn status(&self) -> Result<serde_json::Value> {
        let path = self.served_at().join(PARAMETERS);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("the disk {} does not answer", self.name))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Drops everything cached of the disk, by mounting it again.
    pub fn cool(&self) -> Result<()> {
        self.unmount()?;
        if let Some(device) = &self.loop_device {
            // The device's own cache keeps metadata beyond the unmount.
            tool(Command::new("blockdev").arg("--flushbufs").arg(device))?;
        }
        self.mount()
    }

    fn unmount(&self) -> Result<()> {
        match umount2(&self.mount_point, MntFlags::empty()) {
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
            Err(nix::Error::EBUSY) => bail!(
                "{} is in use{}",
                self.mount_point.display(),
                users_of(&self.mount_point)
            ),
            Err(error) => {
                Err(error).with_context(|| format!("cannot unmount {}", self.mount_point.display()))
            }
        }
    }

    /// Takes down whatever exists of the disk.
    pub fn down(self, force: bool) -> Result<()> {
        // No process should have to wait for a slow disk that is being removed.
        let _ = self.set_speed(Parameters::FAST);
        match self.unmount() {
            Err(_) if force => {
                umount2(&self.mount_point, MntFlags::MNT_DETACH).context("cannot unmount it")?
            }
            other => other?,
        }
        if let Some(device) = &self.loop_device {
            if is_backed(device) {
                tool(Command::new("losetup").arg("-d").arg(device))?;
            }
        }
        self.end_serving()?;
        if self.owns_image {
            let _ = fs::remove_file(&self.image);
        }
        let _ = fs::remove_dir(self.served_at());
        fs::remove_file(state_of(&self.name)).context("cannot remove its note")?;
        Ok(())
    }

    fn end_serving(&self) -> Result<()> {
        match umount2(&self.served_at(), MntFlags::empty()) {
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => (),
            // The loop device releases its file shortly after it is detached.
            Err(_) => umount2(&self.served_at(), MntFlags::MNT_DETACH)
                .with_context(|| format!("cannot unmount {}", self.served_at().display()))?,
        }
        let begin = Instant::now();
        while self.is_served() {
            if begin.elapsed() > Duration::from_secs(10) {
                bail!("its process {} does not end", self.served_by);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub fn is_served(&self) -> bool {
        self.served_by != 0 && started(self.served_by) == Some(self.served_since)
    }

    fn served_at(&self) -> PathBuf {
        Path::new(STATE).join(format!("{}.served", self.name))
    }

    fn save(&self) -> Result<()> {
        let path = state_of(&self.name);
        let new = path.with_extension("new");
        let mut file =
            fs::File::create(&new).with_context(|| format!("cannot write {}", new.display()))?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        fs::rename(&new, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The disk of this name.
    pub fn named(name: &str) -> Result<Disk> {
        check_name(name)?;
        let path = state_of(name);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let all = Disk::all()?;
                let names: Vec<&str> = all.iter().map(|disk| disk.name.as_str()).collect();
                bail!(
                    "there is no disk {name}{}",
                    match names.is_empty() {
                        true => "; `latlab disk up` makes one".to_string(),
                        false => format!("; there are {}", names.join(", ")),
                    }
                );
            }
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))
    }

    /// All running disks.
    pub fn all() -> Result<Vec<Disk>> {
        let Ok(entries) = fs::read_dir(STATE) else {
            return Ok(Vec::new());
        };
        let mut disks = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "json") {
                let text = fs::read_to_string(&path)?;
                let disk = serde_json::from_str(&text)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                disks.push(disk);
            }
        }
        disks.sort_by(|one: &Disk, other| one.name.cmp(&other.name));
        Ok(disks)
    }
}

fn state_of(name: &str) -> PathBuf {
    Path::new(STATE).join(format!("{name}.json"))
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    ensure!(
        !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain),
        "a disk's name is of letters, digits, - and _"
    );
    Ok(())
}

/// Bytes in whole blocks, and the number of files and directories.
fn size_of(directory: &Path) -> Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 0);
    let entries = fs::read_dir(directory)
        .with_context(|| format!("cannot read the directory {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let metadata = entry.metadata()?;
        files += 1;
        if metadata.is_dir() {
            let (more_bytes, more_files) = size_of(&entry.path())?;
            bytes += more_bytes + 4096;
            files += more_files;
        } else {
            bytes += metadata.len().next_multiple_of(4096);
        }
    }
    Ok((bytes, files))
}

/// Runs a system tool, and returns its output.
fn tool(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name} (Debian: util-linux, e2fsprogs)"))?;
    ensure!(
        ran.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&ran.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// The start time of a process, in the kernel's ticks since boot; `None`: there is none, or it has
/// ended.
fn started(pid: u32) -> Option<u64> {
    Some(kit_proc::running(pid)?.starttime)
}

fn is_backed(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    Path::new("/sys/block")
        .join(name)
        .join("loop/backing_file")
        .exists()
}

/// A description of the processes that use a mount; empty if none is found.
fn users_of(mount_point: &Path) -> String {
    let mut users = Vec::new();
    for pid in kit_proc::pids() {
        let process = Path::new("/proc").join(pid.to_string());
        let mut places = vec![process.join("cwd"), process.join("root")];
        let descriptors = fs::read_dir(process.join("fd"));
        places.extend(
            descriptors
                .into_iter()
                .flatten()
                .flatten()
                .map(|fd| fd.path()),
        );
        let uses = |place: &PathBuf| {
            fs::read_link(place).is_ok_and(|target| target.starts_with(mount_point))
        };
        if places.iter().any(uses) {
            let comm = fs::read_to_string(process.join("comm")).unwrap_or_default();
            users.push(format!("{} ({pid})", comm.trim()));
        }
    }
    match users.is_empty() {
        true => String::new(),
        false => format!(" by {}", users.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert!(check_name("slow-1").is_ok());
        for name in ["", "..", "a/b", "a b"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_process_has_one_start() {
        let own = started(std::process::id()).expect("this process");
        assert_eq!(started(std::process::id()), Some(own));
        assert!(started(0).is_none());
    }
}

//! `latlab disk`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use clap::{Args, Subcommand};
use kit_console::{printable, Allowed};

use crate::check::{check, median, ms, Checked};
use crate::daemon::serve;
use crate::disk::Disk;
use crate::model::Parameters;

/// Slow disks of a chosen speed, for metadata too.
#[derive(Debug, Args)]
#[command(after_help = "Example: latlab fileset create files --size 200M
         latlab disk up slow --from files --mount /mnt --service 5ms
         latlab disk check slow
         latlab disk down slow")]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set up a disk: read-only, with the files of a directory or an image.
    #[command(
        after_help = "Example:\n  latlab disk up slow --from /srv/files --mount /mnt --service 5ms"
    )]
    Up(Up),
    /// Change the speed of a running disk.
    #[command(after_help = "Example:\n  latlab disk set slow --service 10ms --depth 4")]
    Set(Set),
    /// Show all running disks.
    #[command(after_help = "Example:\n  latlab disk show")]
    Show,
    /// Drop everything that is cached of a disk.
    #[command(after_help = "Example:\n  latlab disk cool slow")]
    Cool { name: String },
    /// Time cold opens and reads; fails unless they wait for the disk.
    #[command(after_help = "Example:\n  latlab disk check slow --json")]
    Check {
        name: String,
        /// Print JSON: all times, in nanoseconds.
        #[arg(long)]
        json: bool,
    },
    /// Take a disk down.
    #[command(after_help = "Example:\n  latlab disk down slow")]
    Down {
        name: String,
        /// Even if it is in use.
        #[arg(long)]
        force: bool,
    },
    /// Serves an image: what `up` starts.
    #[command(hide = true)]
    Serve { image: PathBuf, at: PathBuf },
}

#[derive(Debug, Args)]
struct Up {
    name: String,
    /// Directory whose files the disk contains.
    #[arg(long, value_name = "DIR", required_unless_present = "image")]
    from: Option<PathBuf>,
    /// An ext4 image; with --from, where it is created and kept.
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Mount point.
    #[arg(long, value_name = "DIR")]
    mount: PathBuf,
    #[command(flatten)]
    speed: Speed,
    /// The kernel's read-ahead for files, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 128)]
    read_ahead: u32,
    /// Do not check that the disk is slow.
    #[arg(long)]
    no_check: bool,
}

#[derive(Debug, Args)]
struct Set {
    name: String,
    #[command(flatten)]
    speed: Speed,
}

#[derive(Debug, Args)]
struct Speed {
    /// What a request takes.
    #[arg(long, value_name = "TIME", value_parser = kit_units::parse_duration, default_value = "5ms")]
    service: Duration,
    /// What a request takes that begins where the last one ended.
    #[arg(long, value_name = "TIME", value_parser = kit_units::parse_duration, default_value = "100us")]
    sequential: Duration,
    /// Transfer rate in MB per second; 0: no limit.
    #[arg(long, value_name = "MB", default_value_t = 100)]
    bandwidth: u64,
    /// Requests served at the same time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u32,
}

impl Speed {
    fn parameters(&self) -> Result<Parameters> {
        let us = |time: Duration| u64::try_from(time.as_micros()).context("that is too long");
        let parameters = Parameters {
            service_us: us(self.service)?,
            sequential_us: us(self.sequential)?,
            bytes_per_second: self.bandwidth.saturating_mul(1_000_000),
            depth: self.depth,
        };
        parameters.check()?;
        Ok(parameters)
    }
}

/// Runs the command.
pub fn run(options: Options) -> Result<()> {
    match options.action {
        Action::Serve { image, at } => return serve(&image, &at, Parameters::FAST),
        Action::Show => return show(),
        _ => (),
    }
    ensure!(
        // SAFETY: it cannot fail.
        unsafe { libc::geteuid() } == 0,
        "disks are put up, checked and taken down by root: they are mounts and loop devices"
    );
    match options.action {
        Action::Up(up) => put_up(up),
        Action::Set(set) => Disk::named(&set.name)?.set(set.speed.parameters()?),
        Action::Cool { name } => Disk::named(&name)?.cool(),
        Action::Check { name, json } => {
            let checked = check(&Disk::named(&name)?)?;
            if json {
                let text = serde_json::to_string_pretty(&checked)?;
                kit_console::print(Allowed::Json, |out| writeln!(out, "{text}"))?;
            } else {
                print(&checked)?;
            }
            checked.require_slow()
        }
        Action::Down { name, force } => Disk::named(&name)?.down(force),
        Action::Serve { .. } | Action::Show => Ok(()),
    }
}

fn put_up(up: Up) -> Result<()> {
    let parameters = up.speed.parameters()?;
    let (image, is_ours) = match (&up.from, up.image) {
        (_, Some(image)) => (image, false),
        (None, None) => anyhow::bail!("--from or --image is needed"),
        (Some(from), None) => {
            // Next to the files, where there was enough space for them.
            let from = from
                .canonicalize()
                .with_context(|| format!("no directory {}", from.display()))?;
            (from.with_extension("latlab-image"), true)
        }
    };
    if let Some(from) = &up.from {
        Disk::make_image(&image, from)?;
    }
    let disk = Disk::up(
        &up.name,
        &image,
        is_ours,
        &up.mount,
        parameters,
        up.read_ahead,
    );
    let disk = match disk {
        Ok(disk) => disk,
        Err(error) => {
            if is_ours {
                let _ = fs::remove_file(&image);
            }
            return Err(error);
        }
    };
    if up.no_check || parameters.service_us == 0 {
        return Ok(());
    }
    let checked = check(&disk).and_then(|checked| checked.require_slow().map(|()| checked));
    match checked {
        Ok(checked) => print(&checked),
        Err(error) => {
            disk.down(false)
                .context("and it cannot be taken down again")?;
            Err(error.context("the disk was taken down again"))
        }
    }
}

fn print(checked: &Checked) -> Result<()> {
    kit_console::print(Allowed::Text, |out| {
        writeln!(out, "{:<16} {:>10} {:>10}", "", "p50 ms", "p90 ms")?;
        for (what, times) in [
            ("cold open", &checked.cold_open_ns),
            ("cold 4 KiB read", &checked.cold_read_ns),
            ("warm open", &checked.warm_open_ns),
            ("warm 4 KiB read", &checked.warm_read_ns),
        ] {
            let tail = times.get(times.len() * 9 / 10).copied().unwrap_or(0);
            let (middle, tail) = (ms(median(times)), ms(tail));
            writeln!(out, "{what:<16} {middle:>10.3} {tail:>10.3}")?;
        }
        Ok(())
    })?;
    Ok(())
}

fn show() -> Result<()> {
    let disks = Disk::all()?;
    kit_console::print(Allowed::Text, |out| {
        if disks.is_empty() {
            writeln!(out, "no disk is up")?;
        }
        disks.iter().try_for_each(|disk| show_one(out, disk))
    })?;
    Ok(())
}

fn show_one(out: &mut impl Write, disk: &Disk) -> io::Result<()> {
    let shown = |path: &Path| printable(&path.display().to_string()).into_owned();
    let name = printable(&disk.name);
    writeln!(out, "{name} on {}", shown(&disk.mount_point))?;
    writeln!(out, "  image       {}", shown(&disk.image))?;
    writeln!(
        out,
        "  speed       {} us a request, {} us in sequence, {} MB/s, depth {}",
        disk.parameters.service_us,
        disk.parameters.sequential_us,
        disk.parameters.bytes_per_second / 1_000_000,
        disk.parameters.depth
    )?;
    if !disk.is_served() {
        writeln!(
            out,
            "  its process has ended: every read fails; `latlab disk down {name}`"
        )?;
    } else if let Ok(status) = disk.status() {
        writeln!(
            out,
            "  served      {} requests, {} waiting",
            status["served"], status["waiting"]
        )?;
    }
    Ok(())
}

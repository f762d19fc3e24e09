// SPDX-License-Identifier: MIT OR Apache-2.0
//! The broker's unit on a machine booted with systemd: it is active with all of its confinement, and
//! serves an unprivileged user.
//!
//! The guest's first process creates a root in memory, with this machine's programs but without its
//! configuration, and becomes systemd. A service there checks the broker, and switches the guest off.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context;
use anyhow::Result;
use nix::mount::mount;
use nix::mount::MsFlags;

use crate::installed::{run, text, PREFIX};
use crate::report::Message;
use crate::report::Outcome;
use crate::report::TestResult;

/// Where the guest's root is assembled.
const ROOT: &str = "/mnt";
const SERVICE: &str = "debox-broker.service";
const SOCKET: &str = "/run/debox/broker.sock";
/// The port that the host reads.
const PORT: &str = "/dev/ttyS1";
const NOBODY: u32 = 65534;
/// Enough for every step, even on an emulated machine that shares its CPU.
const PATIENCE: Duration = Duration::from_secs(300);
/// The highest exposure that `systemd-analyze security` may report, in tenths.
const EXPOSURE_MAX: &str = "25";

/// Units that this guest does not need, or that probe for hardware.
const MASKED: &[&str] = &[
    "proc-sys-fs-binfmt_misc.automount",
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty.target",
    "ldconfig.service",
    "logrotate.timer",
    "man-db.timer",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-machine-id-commit.service",
    "systemd-modules-load.service",
    "systemd-pcrphase-sysinit.service",
    "systemd-pcrphase.service",
    "systemd-random-seed.service",
    "systemd-remount-fs.service",
    "systemd-sysctl.service",
    "systemd-sysusers.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-udev-settle.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udevd.service",
    "systemd-update-done.service",
    "systemd-update-utmp.service",
];

/// Continues when the broker is stopped.
const CHECK: &str = "\
[Unit]
Wants=debox-broker.service
After=debox-broker.service

[Service]
Type=oneshot
ExecStart=@PREFIX@/bin/debox-guests --unit-check
TimeoutStartSec=infinity
";

const TARGET: &str = "\
[Unit]
Requires=debox-check.service
";

/// A program that reads its own records.
const CLIENT: &str = "\
import ctypes, os
debox = ctypes.CDLL('@PREFIX@/lib/libdebox.so')
debox.debox_last.restype = ctypes.c_void_p
debox.debox_last_error_text.restype = ctypes.c_char_p
done = debox.debox_enable(None)
assert done == 0, (done, debox.debox_last_error_text())
os.getppid()
assert debox.debox_last()
print('it has records')
";

/// Becomes systemd. `target`: cargo's directory with the built programs.
pub fn boot(target: &Path, unit: &Path) -> Result<()> {
    let unit = fs::read_to_string(unit).with_context(|| format!("no {}", unit.display()))?;
    let own = std::env::current_exe()?;
    mount_memory(ROOT)?;
    let root = Path::new(ROOT);
    for directory in [
        "usr",
        "etc/systemd/system",
        "var",
        "run",
        "tmp",
        "dev",
        "proc",
        "sys",
        "root",
    ] {
        fs::create_dir_all(root.join(directory))?;
    }
    attach(Path::new("/usr"), &root.join("usr"), MsFlags::MS_BIND)?;
    for link in ["bin", "sbin", "lib", "lib32", "lib64"] {
        if let Ok(to) = fs::read_link(Path::new("/").join(link)) {
            symlink(to, root.join(link))?;
        }
    }
    for file in ["ld.so.cache", "ld.so.conf"] {
        let _ = fs::copy(Path::new("/etc").join(file), root.join("etc").join(file));
    }
    let etc = |name: &str, text: &str| fs::write(root.join("etc").join(name), text);
    etc(
        "passwd",
        "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    )?;
    etc("group", "root:x:0:\nnogroup:x:65534:\n")?;
    etc("machine-id", "0123456789abcdef0123456789abcdef\n")?;
    let system = |name: &str, text: &str| {
        etc(
            &format!("systemd/system/{name}"),
            &text.replace("@PREFIX@", PREFIX),
        )
    };
    system(SERVICE, &unit)?;
    system("debox-check.service", CHECK)?;
    system("debox-check.target", TARGET)?;
    for unit in MASKED {
        symlink("/dev/null", root.join("etc/systemd/system").join(unit))?;
    }
    let prefix = root.join(PREFIX.trim_start_matches('/'));
    for (file, place) in [
        (target.join("debox"), "bin/debox"),
        (own, "bin/debox-guests"),
        (target.join("libdebox.so"), "lib/libdebox.so"),
    ] {
        let place = prefix.join(place);
        fs::create_dir_all(place.parent().context("it has a directory")?)?;
        File::create(&place)?;
        attach(&file, &place, MsFlags::MS_BIND)?;
    }
    for moved in ["dev", "proc", "sys"] {
        attach(
            &Path::new("/").join(moved),
            &root.join(moved),
            MsFlags::MS_MOVE,
        )?;
    }
    std::env::set_current_dir(root)?;
    attach(Path::new("."), Path::new("/"), MsFlags::MS_MOVE)?;
    nix::unistd::chroot(".")?;
    std::env::set_current_dir("/")?;
    let failed = Command::new("/lib/systemd/systemd")
        .arg("--unit=debox-check.target")
        .env_clear()
        .exec();
    Err(failed).context("systemd cannot be executed")
}

fn mount_memory(place: &str) -> Result<()> {
    let none = None::<&str>;
    mount(none, place, Some("tmpfs"), MsFlags::empty(), none)
        .with_context(|| format!("cannot mount memory on {place}"))
}

fn attach(what: &Path, place: &Path, how: MsFlags) -> Result<()> {
    let none = None::<&str>;
    mount(Some(what), place, none, how, none)
        .with_context(|| format!("cannot attach {} to {}", what.display(), place.display()))
}

type Check = (&'static str, fn() -> Result<String>);

const CHECKS: [Check; 7] = [
    ("is_active", is_active),
    ("is_confined", is_confined),
    ("serves_a_command_of_a_user", serves_a_command),
    ("serves_a_program_of_a_user", serves_a_program),
    ("targets_are_found", crate::unit_targets::are_found),
    ("was_refused_nothing", was_refused_nothing),
    ("ends_when_it_is_stopped", ends),
];

/// Checks the broker from inside the guest, reports to the host, and switches the guest off.
pub fn check() -> Result<()> {
    let mut port = OpenOptions::new().write(true).open(PORT)?;
    let mut say = |message: &Message| -> Result<()> {
        writeln!(port, "{}", serde_json::to_string(message)?)?;
        Ok(())
    };
    for (name, check) in CHECKS {
        let began = Instant::now();
        let found = check();
        say(&Message::Test(TestResult {
            suite: "unit".to_string(),
            name: name.to_string(),
            outcome: match found {
                Ok(_) => Outcome::Passed,
                Err(_) => Outcome::Failed,
            },
            seconds: began.elapsed().as_secs_f64(),
            output: match found {
                Ok(said) => said,
                Err(error) => format!("{error:#}"),
            },
        }))?;
    }
    say(&Message::Done)?;
    // Gives the host time to read the last line.
    thread::sleep(Duration::from_millis(200));
    nix::sys::reboot::reboot(nix::sys::reboot::RebootMode::RB_POWER_OFF)?;
    Ok(())
}

fn as_nobody(program: &str) -> Command {
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY);
    command
}

fn is_active() -> Result<String> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if Path::new(SOCKET).exists() {
            return run(Command::new("systemctl").args(["is-active", SERVICE]));
        }
        thread::sleep(Duration::from_millis(200));
    }
    let status = Command::new("systemctl")
        .args(["status", SERVICE])
        .output()?;
    bail!("it does not listen: {}", text(&status));
}

fn is_confined() -> Result<String> {
    let pid = run(Command::new("systemctl").args(["show", "-P", "MainPID", SERVICE]))?;
    let status = fs::read_to_string(PathBuf::from(format!("/proc/{}/status", pid.trim())))?;
    // BPF, PERFMON, SYSLOG, SYS_ADMIN and SYS_PTRACE, and no other.
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t000000c400280000"] {
        ensure!(status.contains(line), "no `{line}` in {status}");
    }
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", pid.trim()))?;
    let is_read_only = |place: &str| {
        let mut of = mounts
            .lines()
            .filter(|line| line.split(' ').nth(4) == Some(place));
        of.next_back()
            .is_some_and(|line| line.split(' ').nth(5).is_some_and(|o| o.starts_with("ro")))
    };
    for place in ["/", "/sys", "/sys/fs/cgroup", "/proc/sys"] {
        ensure!(is_read_only(place), "{place} can be written to: {mounts}");
    }
    let analyzed = run(Command::new("systemd-analyze").args([
        "security",
        "--no-pager",
        "--threshold",
        EXPOSURE_MAX,
        SERVICE,
    ]))?;
    let last = analyzed.lines().last().unwrap_or_default();
    ensure!(last.contains("exposure level"), "{analyzed}");
    Ok(last.to_string())
}

fn serves_a_command() -> Result<String> {
    let debox = format!("{PREFIX}/bin/debox");
    let said = run(as_nobody(&debox).args(["run", "--detail", "callsites", "--", "true"]))?;
    ensure!(said.contains("through the broker"), "{said}");
    Ok(said)
}

fn serves_a_program() -> Result<String> {
    run(as_nobody("python3").args(["-S", "-c", &CLIENT.replace("@PREFIX@", PREFIX)]))
}

fn was_refused_nothing() -> Result<String> {
    let journal = run(Command::new("journalctl").args(["--no-pager", "-o", "cat", "-u", SERVICE]))?;
    for word in ["not permitted", "denied", "panicked", "refused"] {
        ensure!(!journal.contains(word), "{journal}");
    }
    Ok(journal)
}

fn ends() -> Result<String> {
    run(Command::new("systemctl").args(["stop", SERVICE]))?;
    let show = ["show", "-p", "ActiveState,Result,NRestarts", SERVICE];
    let shown = run(Command::new("systemctl").args(show))?;
    for line in ["ActiveState=inactive", "Result=success", "NRestarts=0"] {
        ensure!(shown.contains(line), "{shown}");
    }
    Ok(shown)
}

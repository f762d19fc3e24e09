// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first process of a guest: it provides directories that tests can write to, runs `debox
//! doctor`, runs each test separately, and switches the machine off.

use std::fs::File;
use std::io::Read;
use std::io::Seek;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use nix::mount::mount;
use nix::mount::MsFlags;
use serde::Deserialize;
use serde::Serialize;

use crate::report::Doctor;
use crate::report::Message;
use crate::report::Outcome;
use crate::report::TestResult;

/// Files here are in the guest's memory.
const IN_MEMORY: [&str; 4] = ["/dev/shm", "/tmp", "/run", "/mnt"];

/// Mount point of the guest's own disk, and the disk's path in the initramfs.
const DISK: &str = "/mnt/disk";
const DEVICE: &str = "/dev/nullb0";

/// Files here are on that disk.
const ON_DISK: &str = "/var/tmp";

/// Factor by which things may take longer than on real hardware.
const SLOWNESS: &str = "10";

/// A test that takes longer is considered hung.
const TEST_LIMIT: Duration = Duration::from_secs(1200);

/// Bytes of a failed test's output that are shown, at most.
const OUTPUT_BYTES_MAX: usize = 6_000;

/// The task of a guest.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Plan {
    /// If set, boots systemd with the broker's unit instead of running tests: directory of the
    /// build, and path of the unit.
    #[serde(default)]
    pub unit: Option<(PathBuf, PathBuf)>,
    /// If set, runs commands that come over the serial port instead of tests.
    #[serde(default)]
    pub takes_commands: bool,
    pub programs: Vec<Program>,
    /// Directories that tests write to.
    pub scratch: Vec<PathBuf>,
    /// Directories of the host that stay visible: what was built, and its sources.
    pub shown: Vec<PathBuf>,
    /// Environment variables that the host's compilers need.
    pub environment: Vec<(String, String)>,
}

impl Plan {
    /// Of its tests, only these, given by program and name.
    pub fn only(&self, tests: &[(String, String)]) -> Plan {
        let mut plan = self.clone();
        for program in &mut plan.programs {
            let is_one = |test: &String| tests.contains(&(program.suite.clone(), test.clone()));
            program.tests.retain(is_one);
        }
        plan.programs.retain(|program| !program.tests.is_empty());
        plan
    }
}

/// A test program, and those of its tests that are run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    pub suite: String,
    pub path: PathBuf,
    pub tests: Vec<String>,
}

/// Runs the guest after its initramfs.
pub fn run(plan: &Path) -> Result<()> {
    let done = try_plan(plan);
    match &done {
        Ok(()) => say(&Message::Done),
        Err(error) => say(&Message::Failed(format!("{error:#}"))),
    }
    // Gives the host time to read the last line.
    thread::sleep(Duration::from_millis(200));
    nix::sys::reboot::reboot(nix::sys::reboot::RebootMode::RB_POWER_OFF)?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "JSON to the host, and nothing else"
)]
fn say(message: &Message) {
    let text = serde_json::to_string(message).expect("a message is JSON");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn try_plan(plan: &Path) -> Result<()> {
    let text = std::fs::read_to_string(plan)?;
    let plan: Plan = serde_json::from_str(&text)?;
    if let Some((built, unit)) = &plan.unit {
        return crate::unit::boot(built, unit);
    }
    if plan.takes_commands {
        return crate::own_disk::serve(say);
    }
    for (name, value) in &plan.environment {
        std::env::set_var(name, value);
    }
    places_to_write(&plan.shown)?;
    for (number, directory) in plan.scratch.iter().enumerate() {
        own_copy(directory, &Path::new(DISK).join(number.to_string()))?;
    }

    let first = plan.programs.first().context("the plan has no tests")?;
    // target/PROFILE/deps/NAME, and target/PROFILE/debox
    let profile = first.path.ancestors().nth(2).context("cargo's layout")?;
    say(&Message::Doctor(doctor(&profile.join("debox"))?));
    for program in &plan.programs {
        forget_files();
        for test in &program.tests {
            say(&Message::Test(run_test(program, test)?));
        }
    }
    Ok(())
}

/// Has the kernel forget names and inodes. The daemon on the host has a descriptor open for each one of its files that the
/// guest's kernel remembers, and would come to its limit.
fn forget_files() {
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "2");
}

/// Mounts the guest's own directories over the host's temporary directories. If one of these
/// contains what was built, that is made visible again.
fn places_to_write(shown: &[PathBuf]) -> Result<()> {
    let mut covered = Vec::new();
    for directory in shown.iter().filter(|directory| is_covered(directory)) {
        covered.push((directory, File::open(directory)?));
    }
    for place in IN_MEMORY {
        mount(
            None::<&str>,
            place,
            Some("tmpfs"),
            MsFlags::empty(),
            None::<&str>,
        )
        .with_context(|| format!("cannot mount memory on {place}"))?;
    }
    make_disk()?;
    let temporary = Path::new(DISK).join("tmp");
    std::fs::create_dir(&temporary)?;
    bind(&temporary, Path::new(ON_DISK))?;
    for (directory, opened) in covered {
        std::fs::create_dir_all(directory)?;
        let before = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        bind(&before, directory)?;
    }
    Ok(())
}

fn is_covered(directory: &Path) -> bool {
    let mut places = IN_MEMORY.iter().chain([&ON_DISK]);
    places.any(|place| directory.starts_with(place))
}

fn make_disk() -> Result<()> {
    // Otherwise a kernel thread would initialize it later, and cause I/O that tests do not expect.
    let status = Command::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(DEVICE)
        .stdin(Stdio::null())
        .status()
        .context("cannot run mkfs.ext4")?;
    anyhow::ensure!(
        status.success(),
        "mkfs.ext4 failed on {DEVICE} with {status}"
    );
    std::fs::create_dir(DISK)?;
    mount(
        Some(DEVICE),
        DISK,
        Some("ext4"),
        MsFlags::empty(),
        None::<&str>,
    )
    .with_context(|| format!("cannot mount {DEVICE}"))
}

/// Mounts a copy, made on the guest's own disk, over a directory of the read-only root.
fn own_copy(directory: &Path, copy: &Path) -> Result<()> {
    let status = Command::new("cp")
        .arg("-a")
        .args([directory, copy])
        .status()?;
    anyhow::ensure!(status.success(), "cannot copy {}", directory.display());
    bind(copy, directory)
}

fn bind(what: &Path, place: &Path) -> Result<()> {
    mount(
        Some(what),
        place,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .with_context(|| format!("cannot bind {}", place.display()))
}

/// The exit status says whether debox works; only the findings matter here.
fn doctor(debox: &Path) -> Result<Doctor> {
    let done = Command::new(debox)
        .args(["doctor", "--format", "json"])
        .output()
        .context("debox doctor does not run")?;
    serde_json::from_slice(&done.stdout).with_context(|| {
        format!(
            "debox doctor ended with {}: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        )
    })
}

/// Runs a test only once: a test that fails occasionally has found something.
fn run_test(program: &Program, test: &str) -> Result<TestResult> {
    let began = Instant::now();
    let (outcome, output) = try_test(&program.path, test)?;
    Ok(TestResult {
        suite: program.suite.clone(),
        name: test.to_string(),
        outcome,
        seconds: began.elapsed().as_secs_f64(),
        output,
    })
}

fn try_test(program: &Path, test: &str) -> Result<(Outcome, String)> {
    let mut said = tempfile::tempfile()?;
    let mut child = Command::new(program)
        .args([test, "--exact", "--test-threads", "1"])
        .env("DEBOX_TESTS_SLOWNESS", SLOWNESS)
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("{} does not start", program.display()))?;
    let end = Instant::now() + TEST_LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > end {
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    if status.is_none() {
        // SAFETY: the child has not been waited for, so its id still belongs to it and its group.
        unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
        child.wait()?;
    }
    let text = read_all(&mut said)?;
    Ok(match status {
        None => (
            Outcome::Failed,
            format!("{text}\ndid not end within {TEST_LIMIT:?}"),
        ),
        Some(status) if !status.success() => (Outcome::Failed, ends_of(&text)),
        Some(_) => match skip_reason(&text) {
            Some(reason) => (Outcome::Skipped, reason.to_string()),
            None => (Outcome::Passed, String::new()),
        },
    })
}

fn read_all(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The harness's message about a case that cannot be tested, or the test runner's about an ignored
/// one.
fn skip_reason(text: &str) -> Option<&str> {
    let after = |mark| text.lines().find_map(|line| line.split_once(mark));
    let found = after("SKIPPED ").or_else(|| after(" ... ignored"));
    found.map(|(_, reason)| reason.trim_start_matches(", "))
}

/// The beginning and the end of a long text, cut between characters: the failure is at the
/// beginning, and the program's messages at the end.
fn ends_of(text: &str) -> String {
    if text.len() <= OUTPUT_BYTES_MAX {
        return text.to_string();
    }
    let half = OUTPUT_BYTES_MAX / 2;
    let whole = |from: usize| (from..=text.len()).find(|place| text.is_char_boundary(*place));
    let end = text.len();
    let first = &text[..whole(half).unwrap_or(end)];
    let last = &text[whole(end - half).unwrap_or(end)..];
    format!("{first}\n[...]\n{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_case_says_why() {
        let text = "running 1 test\nSKIPPED as_strace_counts: no strace (1 in this test program)\n";
        let reason = skip_reason(text).expect("skipped");
        assert!(
            reason.starts_with("as_strace_counts: no strace"),
            "{reason}"
        );
        let ignored = "test a ... ignored, takes an hour\n";
        assert_eq!(skip_reason(ignored), Some("takes an hour"));
        assert_eq!(skip_reason("test a ... ok\n"), None);
    }

    #[test]
    fn what_lies_among_temporary_files_is_put_back() {
        assert!(is_covered(Path::new("/tmp/clone/target")));
        assert!(is_covered(Path::new("/var/tmp/clone")));
        assert!(!is_covered(Path::new("/home/user/tmp")));
        assert!(!is_covered(Path::new("/tmpfiles")));
    }

    #[test]
    fn the_ends_of_a_long_text_are_whole_characters() {
        let text = "start".to_string() + &"é".repeat(OUTPUT_BYTES_MAX) + "end";
        let ends = ends_of(&text);
        assert!(ends.starts_with("start") && ends.ends_with("end"), "{ends}");
        assert!(ends.len() <= OUTPUT_BYTES_MAX + 10);
        assert_eq!(ends_of("short"), "short");
    }

    /// The test program is this one.
    #[test]
    fn outcomes_are_the_programs_own() {
        let own = std::env::current_exe().expect("a path");
        let (outcome, _) =
            try_test(&own, "kernels::tests::a_series_is_not_its_longer_namesake").expect("it runs");
        assert_eq!(outcome, Outcome::Passed);
        let (outcome, output) = try_test(Path::new("/bin/false"), "any").expect("it runs");
        assert_eq!((outcome, output.as_str()), (Outcome::Failed, ""));
    }
}

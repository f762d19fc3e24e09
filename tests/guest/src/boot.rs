// SPDX-License-Identifier: MIT OR Apache-2.0
//! One guest: the daemon that serves this machine's files to it, the emulator, and its messages. Both
//! processes end when this one does, in whatever way.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use anyhow::Result;

use crate::fetch::KernelFiles;
use crate::image;
use crate::inside::Plan;
use crate::kernels::Kernel;
use crate::report::GuestReport;
use crate::report::Message;
use crate::report::Outcome;
use crate::report::TestResult;

/// A kernel takes some seconds to boot; a guest that is silent for this long hangs. The longest tests
/// take five minutes of CPU time (600 functions probed one by one on 6.1), and the guest may have to
/// share the CPU.
const SILENCE: Duration = Duration::from_secs(1500);

/// What a guest's clock follows. In either case one thread emulates both processors in turn: QEMU before 8.1
/// (commit deba7870) may translate an instruction while the other processor changes it, and then execute an
/// instruction that is no longer there. A kernel that patches its own code, as it does for every tracepoint
/// that is enabled, then dies of a breakpoint that it has already removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// It advances by 4 ns for each instruction, as if the guest had a host of its own, and together with the
    /// host's clock while the guest is idle. Other work on the host therefore takes no time from the guest's
    /// tests, but they take three times as long.
    Instructions,
    /// The host's. The guest has to have a processor for itself.
    Host,
}

const COUNTED: &str = "shift=2,sleep=on";

impl Clock {
    /// A guest that counts instructions can wait for a processor; one with the host's clock cannot.
    fn nice(self) -> i32 {
        match self {
            Clock::Instructions => 10,
            Clock::Host => -10,
        }
    }
}

/// Where the daemon may be installed, and whether it is the newer one, written in Rust.
const DAEMONS: [(&str, bool); 2] = [
    ("/usr/libexec/virtiofsd", true),
    ("/usr/lib/qemu/virtiofsd", false),
];

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Ctrl-C and similar signals end the guest and remove its files, as any other end does. So does the end
/// of the script that started this process.
pub fn catch_signals() {
    extern "C" fn stop(_: i32) {
        STOPPED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler = stop as extern "C" fn(i32);
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    // SAFETY: it takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
}

pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Boots the kernel, runs the plan and fills in the report.
pub fn run(
    kernel: &Kernel,
    files: &KernelFiles,
    (plan, clock): (&Plan, Clock),
    limit: Duration,
    report: &mut GuestReport,
) -> Result<()> {
    // Not in memory, which the guest needs.
    let directory = tempfile::Builder::new()
        .prefix("debox-guest-")
        .tempdir_in("/var/tmp")?;
    let directory = directory.path();
    let plan_file = directory.join("plan.json");
    std::fs::write(&plan_file, serde_json::to_string(plan)?)?;
    let program = std::env::current_exe()?;
    let initramfs = image::initramfs(directory, files, &program, &plan_file)?;
    let socket = directory.join("root");
    let _daemon = serve_root(&socket)?;

    let mut guest = emulate((kernel, clock), files, &initramfs, &socket, directory)?;
    let outcome = listen(&mut guest, limit, report);
    if outcome.is_err() {
        show_console(kernel.name, &directory.join("console"));
    }
    outcome
}

/// A child process that ends with this process, or when this value is dropped.
struct Helper(Child);

impl Helper {
    fn start(command: &mut Command) -> Result<Helper> {
        let name = command.get_program().to_string_lossy().into_owned();
        // SAFETY: between fork and exec, only async-signal-safe calls are made.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Helper(child))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the daemon that serves this machine's root, in a mount namespace in which the root is
/// read-only.
fn serve_root(socket: &Path) -> Result<Helper> {
    let Some((daemon, is_rust)) = DAEMONS
        .iter()
        .find(|(daemon, _)| Path::new(daemon).exists())
    else {
        bail!("virtiofsd is needed; it comes with Debian's qemu-system-common, or as virtiofsd");
    };
    let listener = UnixListener::bind(socket)?;
    let descriptor = listener.as_raw_fd();
    let options: &[&str] = if *is_rust {
        &[
            "--shared-dir=/",
            "--sandbox=none",
            "--cache=always",
            "--log-level=warn",
        ]
    } else {
        &["-o", "source=/,sandbox=chroot,cache=always,log_level=warn"]
    };
    let script = "mount -o remount,bind,ro / && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .arg(daemon)
        .arg(format!("--fd={descriptor}"))
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: fcntl is async-signal-safe, and the descriptor is open until after the spawn.
    unsafe {
        command.pre_exec(move || {
            libc::fcntl(descriptor, libc::F_SETFD, 0);
            Ok(())
        })
    };
    Helper::start(&mut command)
}

fn emulate(
    (kernel, clock): (&Kernel, Clock),
    files: &KernelFiles,
    initramfs: &Path,
    root: &Path,
    directory: &Path,
) -> Result<Helper> {
    // An older Intel processor, because kernels trust its time-stamp counter to run at a constant rate.
    // Mitigations only cost time here.
    let processor = format!(
        "max,{},vendor=GenuineIntel,family=6,model=58,stepping=9",
        kernel.processor
    );
    let shown = |path: &Path| path.display().to_string();
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-accel", "tcg,thread=single"])
        .args(match clock {
            Clock::Instructions => &["-icount", COUNTED][..],
            Clock::Host => &[],
        })
        .args(["-cpu", &processor, "-smp", "2", "-m", "2048"])
        .args([
            "-object",
            "memory-backend-memfd,id=memory,size=2048M,share=on",
        ])
        .args(["-machine", "pc,memory-backend=memory"])
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .arg("-serial")
        .arg(format!("file:{}", shown(&directory.join("console"))))
        .args(["-serial", "stdio"])
        .arg("-chardev")
        .arg(format!("socket,id=root,path={}", shown(root)))
        .args(["-device", "vhost-user-fs-pci,chardev=root,tag=root"])
        .arg("-kernel")
        .arg(&files.image)
        .arg("-initrd")
        .arg(initramfs)
        .args([
            "-append",
            // Where instructions are not counted, the timer check counts the host's ticks: on a busy host
            // it finds too few, and 6.1 panics. Clearing memory on allocation is off unless requested.
            "console=ttyS0 quiet panic=-1 mitigations=off init_on_alloc=0 tsc=reliable no_timer_check",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let nice = clock.nice();
    // SAFETY: nice only sets a number of the child's own.
    unsafe {
        command.pre_exec(move || {
            libc::nice(nice);
            Ok(())
        })
    };
    Helper::start(&mut command)
}

/// Reads the guest's messages until it is done, dies, is silent for too long, or exceeds its time limit.
fn listen(guest: &mut Helper, limit: Duration, report: &mut GuestReport) -> Result<()> {
    let output = guest
        .0
        .stdout
        .take()
        .context("the guest's output is a pipe")?;
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let began = Instant::now();
    let mut heard = began;
    let result = loop {
        match receiver.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                heard = Instant::now();
                // The guest's terminal may also print other lines.
                let Ok(message) = serde_json::from_str::<Message>(line.trim()) else {
                    eprintln!("{}: {}", report.name, line.trim());
                    continue;
                };
                if let Message::Test(test) = &message {
                    show_test(report.name, test);
                }
                if report.take(message) {
                    break Ok(());
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                break Err(anyhow::anyhow!("the guest ended before its tests did"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if is_stopped() => {
                break Err(anyhow::anyhow!("stopped by a signal"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if began.elapsed() > limit => {
                break Err(anyhow::anyhow!("the guest was not done after {limit:?}"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) if heard.elapsed() > SILENCE => {
                break Err(anyhow::anyhow!("the guest said nothing for {SILENCE:?}"));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    };
    let cpu = cpu_seconds(&guest.0);
    let _ = guest.0.kill();
    let _ = guest.0.wait();
    let _ = reader.join();
    eprintln!(
        "{}: ended after {:.0} s, {cpu:.0} s of them on a CPU",
        report.name,
        began.elapsed().as_secs_f64(),
    );
    if report.doctor.is_none() && !is_stopped() {
        return result.context("it did not boot");
    }
    result
}

/// CPU time of a child that has not been waited for: it measures a guest independently of other load on
/// the machine.
fn cpu_seconds(child: &Child) -> f64 {
    let mut clock = 0;
    // SAFETY: `clock` takes what the call writes; the child's id is still its own.
    if unsafe { libc::clock_getcpuclockid(child.id() as i32, &mut clock) } != 0 {
        return f64::NAN;
    }
    nix::time::clock_gettime(nix::time::ClockId::from_raw(clock))
        .map_or(f64::NAN, |used| Duration::from(used).as_secs_f64())
}

fn show_test(kernel: &str, test: &TestResult) {
    let word = match test.outcome {
        Outcome::Passed => "ok",
        Outcome::Skipped => "skipped",
        Outcome::Failed => "FAILED",
    };
    let mut text = format!(
        "{kernel} {} {} ... {word} ({:.1} s)\n",
        test.suite, test.name, test.seconds
    );
    if test.outcome != Outcome::Passed {
        text.extend(test.output.lines().map(|line| format!("    | {line}\n")));
    }
    eprint!("{text}"); // in one write: other guests print at the same time
}

/// Prints the end of the kernel's console, most likely a panic.
fn show_console(kernel: &str, path: &Path) {
    let mut text = Vec::new();
    let Ok(mut file) = std::fs::File::open(path) else {
        return;
    };
    let _ = file.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(40)..] {
        eprintln!("{kernel} kernel | {line}");
    }
}

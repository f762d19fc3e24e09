// SPDX-License-Identifier: MIT OR Apache-2.0
//! One guest: the daemon that serves this machine's files to it, the emulator, and its messages. Both
//! processes end when this one does, in whatever way.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::ChildStdout;
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

/// What is emulated.
#[derive(Debug)]
pub struct Hardware<'a> {
    pub clock: Clock,
    /// A file of this machine that is the guest's disk.
    pub disk: Option<&'a Path>,
    /// Whether the kernel guards against what the emulated processor would leak if it were real.
    pub mitigated: bool,
}

impl Hardware<'_> {
    pub fn for_tests(clock: Clock) -> Hardware<'static> {
        Hardware {
            clock,
            disk: None,
            // They only cost time.
            mitigated: false,
        }
    }
}

/// A guest that has been started. It ends when this is dropped.
pub struct Guest {
    name: &'static str,
    emulator: Helper,
    messages: mpsc::Receiver<String>,
    began: Instant,
    _daemon: Helper,
    directory: tempfile::TempDir,
}

/// Boots the kernel with the plan.
pub fn boot(
    kernel: &Kernel,
    files: &KernelFiles,
    plan: &Plan,
    hardware: &Hardware,
) -> Result<Guest> {
    // Not in memory, which the guest needs.
    let directory = tempfile::Builder::new()
        .prefix("debox-guest-")
        .tempdir_in("/var/tmp")?;
    let path = directory.path();
    let plan_file = path.join("plan.json");
    std::fs::write(&plan_file, serde_json::to_string(plan)?)?;
    let program = std::env::current_exe()?;
    let initramfs = image::initramfs(path, files, &program, &plan_file)?;
    let socket = path.join("root");
    let daemon = serve_root(&socket)?;
    let mut emulator = emulate((kernel, hardware), files, &initramfs, &socket, path)?;
    let output = emulator.0.stdout.take();
    let messages = lines_of(output.context("the guest's output is a pipe")?);
    Ok(Guest {
        name: kernel.name,
        emulator,
        messages,
        began: Instant::now(),
        _daemon: daemon,
        directory,
    })
}

/// The lines as they come, until there are no more.
fn lines_of(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Runs a guest to its end, and fills in the report.
pub fn run(mut guest: Guest, limit: Duration, report: &mut GuestReport) -> Result<()> {
    let end = Instant::now() + limit;
    let result = loop {
        match guest.next_message(end) {
            Ok(message) => {
                if let Message::Test(test) = &message {
                    show_test(report.name, test);
                }
                if report.take(message) {
                    break Ok(());
                }
            }
            Err(error) => break Err(error),
        }
    };
    guest.end();
    if result.is_err() {
        guest.show_console();
    }
    if report.doctor.is_none() && !is_stopped() {
        return result.context("it did not boot");
    }
    result
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
    (kernel, hardware): (&Kernel, &Hardware),
    files: &KernelFiles,
    initramfs: &Path,
    root: &Path,
    directory: &Path,
) -> Result<Helper> {
    // An older Intel processor, because kernels trust its time-stamp counter to run at a constant rate.
    let processor = format!(
        "max,{},vendor=GenuineIntel,family=6,model=58,stepping=9",
        kernel.processor
    );
    let shown = |path: &Path| path.display().to_string();
    // What the guest syncs need not survive a crash of this machine.
    let disk = hardware.disk.map(|file| {
        let file = shown(file).replace(',', ",,");
        format!("file={file},if=virtio,format=raw,cache=unsafe")
    });
    let mitigations = match hardware.mitigated {
        true => "auto",
        false => "off",
    };
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-accel", "tcg,thread=single"])
        .args(match hardware.clock {
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
        .args(disk.iter().flat_map(|disk| ["-drive", disk]))
        .arg("-kernel")
        .arg(&files.image)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(format!(
            // Where instructions are not counted, the timer check counts the host's ticks: on a busy host
            // it finds too few, and 6.1 panics. Clearing memory on allocation is off unless requested.
            "console=ttyS0 quiet panic=-1 mitigations={mitigations} init_on_alloc=0 tsc=reliable no_timer_check",
        ))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let nice = hardware.clock.nice();
    // SAFETY: nice only sets a number of the child's own.
    unsafe {
        command.pre_exec(move || {
            libc::nice(nice);
            Ok(())
        })
    };
    Helper::start(&mut command)
}

impl Guest {
    /// The guest's next message. An error if it ends, is silent for too long, or is not done in time.
    pub fn next_message(&mut self, end: Instant) -> Result<Message> {
        let mut heard = Instant::now();
        loop {
            match self.messages.recv_timeout(Duration::from_millis(200)) {
                // The guest's terminal may also print other lines.
                Ok(line) => match serde_json::from_str::<Message>(line.trim()) {
                    Ok(message) => return Ok(message),
                    Err(_) => {
                        heard = Instant::now();
                        eprintln!("{}: {}", self.name, line.trim());
                    }
                },
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    bail!("the guest ended before it was done");
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if is_stopped() {
                bail!("stopped by a signal");
            }
            if Instant::now() > end {
                bail!("the guest was not done in time");
            }
            if heard.elapsed() > SILENCE {
                bail!("the guest said nothing for {SILENCE:?}");
            }
        }
    }

    /// Sends a line to the guest's second serial port.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.emulator.0.stdin.as_mut();
        let input = input.context("the guest's input is a pipe")?;
        writeln!(input, "{line}").context("the guest takes no more")?;
        Ok(input.flush()?)
    }

    /// Switches it off, and says how long it took.
    pub fn end(&mut self) {
        let cpu = cpu_seconds(&self.emulator.0);
        let _ = self.emulator.0.kill();
        let _ = self.emulator.0.wait();
        eprintln!(
            "{}: ended after {:.0} s, {cpu:.0} s of them on a CPU",
            self.name,
            self.began.elapsed().as_secs_f64(),
        );
    }

    /// Prints the end of the kernel's console, most likely a panic.
    pub fn show_console(&self) {
        let mut text = Vec::new();
        let Ok(mut file) = std::fs::File::open(self.directory.path().join("console")) else {
            return;
        };
        let _ = file.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(40)..] {
            eprintln!("{} kernel | {line}", self.name);
        }
    }
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

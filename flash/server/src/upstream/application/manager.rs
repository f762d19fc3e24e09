// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that keeps an application's processes: it starts them, or connects to those that were started elsewhere,
//! passes their channels to the server, and replaces those that end. It ends with the server, or when no configuration
//! has the application any more.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{killpg, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{recv, sendmsg, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::children::{child_signals, wait, Order};
use super::{Said, Source, SAID};

mod starting;

/// For a process that has been started to be ready.
const START: Duration = Duration::from_secs(30);
/// For a process to end by itself that has closed its channel, and between the request to end and the end.
const MOMENT: Duration = Duration::from_millis(100);
const MERCY: Duration = Duration::from_secs(3);
/// Until a process is replaced: at first; at most, if it was ready; and if it was not. Each failure in a row doubles it.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(30);
/// A process that has lived so long has not failed at once.
const LIVED: Duration = Duration::from_secs(10);
/// The place of one process.
struct Place {
    /// Unique among all processes.
    serial: u64,
    stage: Stage,
    /// If it was started here: its number, which is also that of its group.
    pid: Option<Pid>,
    began: Instant,
    was_ready: bool,
    failures: u32,
}

enum Stage {
    /// There is none until then.
    Empty(Instant),
    /// It has not said that it is ready.
    Begins(OwnedFd),
    /// The server has its channel.
    Serves(OwnedFd),
    /// It is to end, and has until then. `is_asked`: it has been told.
    Ends { until: Instant, is_asked: bool },
}

pub fn run(order: &Order, server: &OwnedFd) -> Result<()> {
    let signals = child_signals()?;
    let _ = rustix::thread::set_name(c"flash-app");
    let now = Instant::now();
    let mut keeper = Keeper {
        order,
        server,
        // Not those of a manager that has failed.
        next_serial: u64::from(std::process::id()) << 32,
        last_said: None,
        places: (0..order.processes)
            .map(|_| Place {
                serial: 0,
                stage: Stage::Empty(now),
                pid: None,
                began: now,
                was_ready: false,
                failures: 0,
            })
            .collect(),
    };
    while keeper.turn(&signals)? {}
    keeper.end(&signals)
}

struct Keeper<'a> {
    order: &'a Order,
    server: &'a OwnedFd,
    next_serial: u64,
    places: Vec<Place>,
    /// What was said last, and when: a process that always fails should not fill a log.
    last_said: Option<(String, Instant)>,
}

impl Keeper<'_> {
    /// False: the server needs none of this any more.
    fn turn(&mut self, signals: &SignalFd) -> Result<bool> {
        let now = Instant::now();
        for at in 0..self.places.len() {
            if matches!(self.places[at].stage, Stage::Empty(time) if time <= now) {
                self.begin(at);
            }
        }
        let (is_over, has_order, ready) = self.wait(signals)?;
        if is_over {
            return Ok(false);
        }
        while let Ok(Some(_)) = signals.read_signal() {}
        if has_order {
            self.kill();
        }
        for (at, is_ready) in ready.into_iter().enumerate() {
            if is_ready {
                self.look_at(at);
            }
        }
        self.reap();
        self.look_at_times();
        Ok(true)
    }

    fn wait(&self, signals: &SignalFd) -> Result<(bool, bool, Vec<bool>)> {
        let mut polled = vec![
            PollFd::new(self.server, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let mut places = Vec::new();
        for (at, place) in self.places.iter().enumerate() {
            let (channel, events) = match &place.stage {
                Stage::Begins(channel) => (channel, PollFlags::IN),
                // What it says is for the server. That it ends cannot be left out.
                Stage::Serves(channel) => (channel, PollFlags::empty()),
                Stage::Empty(_) | Stage::Ends { .. } => continue,
            };
            places.push(at);
            polled.push(PollFd::new(channel, events));
        }
        let times = self.places.iter().filter_map(|place| match place.stage {
            Stage::Empty(time) | Stage::Ends { until: time, .. } => Some(time),
            Stage::Begins(_) if place.pid.is_some() => Some(place.began + START),
            _ => None,
        });
        wait(&mut polled, times.min())?;
        let of_server = polled[0].revents();
        let mut ready = vec![false; self.places.len()];
        for (at, polled) in places.into_iter().zip(&polled[2..]) {
            ready[at] = !polled.revents().is_empty();
        }
        let is_over = of_server.intersects(PollFlags::HUP | PollFlags::ERR);
        Ok((is_over, of_server.contains(PollFlags::IN), ready))
    }

    fn begin(&mut self, at: usize) {
        self.next_serial += 1;
        let serial = self.next_serial;
        let begun = match &self.order.source {
            Source::Command {
                command,
                directory,
                environment,
            } => starting::execute(command, directory, environment)
                .map(|(pid, channel)| (Some(pid), channel)),
            Source::Socket { path, user } => {
                starting::reach(path, *user).map(|channel| (None, channel))
            }
        };
        let place = &mut self.places[at];
        place.serial = serial;
        place.began = Instant::now();
        place.was_ready = false;
        match begun {
            Ok((pid, channel)) => {
                place.pid = pid;
                place.stage = Stage::Begins(channel);
            }
            Err(error) => self.failed(at, &format!("{error:#}")),
        }
    }

    /// It has said something, or ended.
    fn look_at(&mut self, at: usize) {
        let place = &mut self.places[at];
        match &place.stage {
            Stage::Begins(channel) => {
                let mut message = [0u8; SAID + 1];
                let said = match recv(channel, &mut message, RecvFlags::DONTWAIT) {
                    Ok((length, _)) => Said::read(&message[..length]),
                    Err(Errno::AGAIN | Errno::INTR) => return,
                    Err(_) => None,
                };
                let Stage::Begins(channel) =
                    std::mem::replace(&mut place.stage, Stage::Empty(Instant::now()))
                else {
                    return;
                };
                if said != Some(Said::Hello) {
                    let why = "it does not speak this version of the protocol, or has ended before it was ready";
                    return self.ends(at, Some(why));
                }
                match pass(self.server, place.serial, &channel) {
                    Ok(()) => {
                        place.was_ready = true;
                        place.stage = Stage::Serves(channel);
                    }
                    Err(_) => self.ends(at, Some("the server takes no more processes")),
                }
            }
            Stage::Serves(_) => self.ends(at, None),
            Stage::Empty(_) | Stage::Ends { .. } => {}
        }
    }

    /// Its channel is of no use any more: it is replaced, once it has ended. `why`: it should not have come to this.
    fn ends(&mut self, at: usize, why: Option<&str>) {
        let place = &mut self.places[at];
        match (place.pid, why) {
            (Some(pid), _) => {
                place.stage = Stage::Ends {
                    until: Instant::now() + MOMENT,
                    is_asked: false,
                };
                if let Some(why) = why {
                    self.say(&format!("process {pid}: {why}"));
                }
            }
            (None, why) => self.failed(at, why.unwrap_or("a process has closed its connection")),
        }
    }

    /// There is no process at this place, and will be none for a while.
    fn failed(&mut self, at: usize, why: &str) {
        let place = &mut self.places[at];
        place.pid = None;
        if place.began.elapsed() >= LIVED {
            place.failures = 0;
        }
        let pause = LEAST_PAUSE * 2u32.saturating_pow(place.failures.min(12));
        let most = if place.was_ready { PAUSE } else { MOST_PAUSE };
        let pause = pause.min(most);
        place.failures += 1;
        place.stage = Stage::Empty(Instant::now() + pause);
        self.say(&format!("{why}; the next one begins in {pause:?}"));
    }

    fn say(&mut self, text: &str) {
        let is_known = self
            .last_said
            .as_ref()
            .is_some_and(|(its, at)| its == text && at.elapsed() < MOST_PAUSE / 2);
        if !is_known {
            let name = &self.order.name;
            kit_console::say_error("flash", &format!("the application {name}: {text}"));
            self.last_said = Some((text.to_string(), Instant::now()));
        }
    }

    /// What the server wants to have ended at once.
    fn kill(&mut self) {
        let mut serial = [0u8; 8];
        while let Ok((8, _)) = recv(self.server, &mut serial, RecvFlags::DONTWAIT) {
            let serial = u64::from_le_bytes(serial);
            let found = self.places.iter().find(|place| place.serial == serial);
            if let Some(pid) = found.and_then(|place| place.pid) {
                let _ = killpg(pid, Signal::SIGKILL);
            }
        }
    }

    fn reap(&mut self) {
        loop {
            let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, status)) => {
                    (pid, format!("has ended with status {status}"))
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, format!("was ended by {signal}")),
                Ok(WaitStatus::StillAlive) | Err(_) => return,
                Ok(_) => continue,
            };
            if let Some(at) = self.places.iter().position(|place| place.pid == Some(pid)) {
                // What it has started may hold clients' sockets.
                let _ = killpg(pid, Signal::SIGKILL);
                self.failed(at, &format!("process {pid} {how}"));
            }
        }
    }

    fn look_at_times(&mut self) {
        let now = Instant::now();
        for at in 0..self.places.len() {
            let place = &self.places[at];
            let Some(pid) = place.pid else {
                continue;
            };
            match place.stage {
                Stage::Ends { until, is_asked } if until <= now => {
                    let signal = match is_asked {
                        false => Signal::SIGTERM,
                        true => Signal::SIGKILL,
                    };
                    let _ = killpg(pid, signal);
                    self.places[at].stage = Stage::Ends {
                        until: now + MERCY,
                        is_asked: true,
                    };
                }
                Stage::Begins(_) if place.began + START <= now => {
                    self.ends(at, Some("it was not ready in 30 s"));
                }
                _ => {}
            }
        }
    }

    /// The server has ended: its processes do, too.
    fn end(&mut self, signals: &SignalFd) -> Result<()> {
        let of = |place: &Place| place.pid;
        for pid in self.places.iter().filter_map(of) {
            let _ = killpg(pid, Signal::SIGTERM);
        }
        let until = Instant::now() + MERCY;
        // Some see their end by their channels.
        for place in &mut self.places {
            place.stage = Stage::Ends {
                until,
                is_asked: true,
            };
        }
        self.last_said = None;
        while self.places.iter().any(|place| place.pid.is_some()) && Instant::now() < until {
            let mut polled = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
            wait(&mut polled, Some(until))?;
            while let Ok(Some(_)) = signals.read_signal() {}
            while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)) =
                waitpid(None, Some(WaitPidFlag::WNOHANG))
            {
                for place in &mut self.places {
                    place.pid = place.pid.filter(|its| *its != pid);
                }
            }
        }
        for pid in self.places.iter().filter_map(of) {
            let _ = killpg(pid, Signal::SIGKILL);
        }
        Ok(())
    }
}

/// To the loops.
fn pass(server: &OwnedFd, serial: u64, channel: &OwnedFd) -> Result<(), Errno> {
    let passed = [channel.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let serial = serial.to_le_bytes();
    sendmsg(server, &[IoSlice::new(&serial)], &mut ancillary, flags)?;
    Ok(())
}

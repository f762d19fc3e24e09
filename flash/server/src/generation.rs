// SPDX-License-Identifier: MIT OR Apache-2.0
//! One configuration in force: its loops and helpers, with the sandbox of its directories. Threads cannot get other
//! limits once they have some, so another configuration has other threads. Sockets, counters and connections go on.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use rustix::io::write;

use crate::access::limits::Limits as ClientLimits;
use crate::access::passwords::Passwords;
use crate::address::Address;
use crate::context::{Heirs, Phase, Shared};
use crate::ending::end_the_server;
use crate::event_loop::EventLoop;
use crate::handover::Arrivals;
use crate::helpers::pools::Pools;
use crate::helpers::{Inbox, Pool};
use crate::limits::Limits;
use crate::log::LogFile;
use crate::network::Network;
use crate::plan::Plan;
use crate::sandbox::{self, Reach, Role};
use crate::sites;
use crate::tally::Tally;
use crate::upstream::application::host::Host;
use crate::upstream::scripts::Scripts;
use crate::upstream::Upstream;

/// Jobs that wait for a helper; a request beyond is answered with 503.
const QUEUE: usize = 4096;

/// What can go on from one configuration to the next as it is.
pub struct Parts {
    pub log: Option<Arc<LogFile>>,
    /// Of programs that answer requests.
    pub messages: Option<Arc<LogFile>>,
    pub scripts: Option<Arc<Scripts>>,
    pub applications: Option<Arc<Host>>,
}

pub struct Generation {
    pub network: Network,
    pub parts: Parts,
    upstreams: Vec<Arc<Upstream>>,
    reach: Reach,
    shared: Arc<Shared>,
    arrivals: Vec<Arc<Arrivals>>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Each lets a loop begin.
    gates: Vec<Sender<()>>,
    /// Loops that have not ended.
    running: Arc<AtomicUsize>,
    connections: usize,
    open_files: usize,
}

impl Generation {
    /// Starts the threads, which wait for [`Generation::begin`]. `ended`: an eventfd that counts loops that end. `before`:
    /// the generation in force.
    ///
    /// # Errors
    ///
    /// A directory cannot be opened, or no thread be started. Nothing has been accepted then.
    pub fn start(
        plan: Plan,
        network: Network,
        parts: Parts,
        tally: &Tally,
        ended: &Arc<OwnedFd>,
        before: Option<&Generation>,
    ) -> Result<Generation> {
        let limits = Limits::of(&plan);
        let loops = plan.loops.max(1);
        let mut earlier = before.map(Generation::of_sites).unwrap_or_default();
        earlier.applications.clone_from(&parts.applications);
        let (hosts, upstreams) = sites::open(&plan.hosts, &network.listens, &earlier)?;
        let (status, statuses) = mpsc::channel();
        let few = (plan.helpers / 4).max(1);
        let devices = sites::devices(&hosts);
        let helpers = Pools::start(devices, |name, is_for_missing, device| {
            let prepare = limits.prepare(Role::Helper, &status);
            let (threads_name, threads) = match is_for_missing {
                true => ("flash-doubtful", few),
                false => ("flash-helper", plan.helpers),
            };
            let counts = tally.of_helpers(name, is_for_missing);
            let pool = Pool::start(threads_name, threads, QUEUE, device, counts, prepare);
            pool.context("no helper thread")
        })?;
        let users = sites::user_files(&hosts);
        let passwords = match users.is_empty() {
            true => None,
            false => {
                let prepare = limits.prepare(Role::Password, &status);
                let counts = Arc::clone(&tally.passwords);
                let passwords = Passwords::start(plan.options.passwords, users, counts, prepare);
                Some(passwords.context("no thread for passwords")?)
            }
        };
        let of_clients = &plan.options.limits;
        let of_clients = of_clients.limit_something().then(|| {
            let before = before.and_then(|before| before.shared.limits.as_deref());
            ClientLimits::new(of_clients.clone(), before)
        });
        let shared = Arc::new(Shared {
            password_key: tally.password_key.clone(),
            hosts,
            helpers,
            passwords,
            limits: of_clients,
            log: parts.log.as_ref().map(|file| Arc::clone(&file.log)),
            messages: parts.messages.as_ref().map(|file| Arc::clone(&file.log)),
            scripts: parts.scripts.clone(),
            pools: upstreams.iter().filter_map(|it| it.pool.clone()).collect(),
            ports: network
                .ports
                .iter()
                .map(|port| port.addresses.iter().find_map(Address::port).unwrap_or(0))
                .collect(),
            loops,
            counts: tally.loops.clone(),
            reloads: Arc::clone(&tally.reloads),
            spare: Arc::clone(&tally.spare),
            sandbox: OnceLock::new(),
            heirs: OnceLock::new(),
            phase: (Phase::Serves as u8).into(),
        });
        let reach = Reach::of(&plan.hosts);
        let options = Arc::new(plan.options);
        let listeners = network.listeners(loops);
        let mut it = Generation {
            network,
            parts,
            upstreams,
            reach,
            shared,
            arrivals: Vec::new(),
            threads: Vec::new(),
            gates: Vec::new(),
            running: Arc::new(AtomicUsize::new(0)),
            connections: loops * options.max_connections,
            open_files: options.stages.open_files(),
        };
        for (number, listeners) in listeners.into_iter().enumerate() {
            let inbox = Arc::new(Inbox::new().context("no descriptor for a loop")?);
            let arrivals = Arc::new(Arrivals::new(Arc::clone(&inbox)));
            it.arrivals.push(Arc::clone(&arrivals));
            let role = Role::Loop {
                inbox: inbox.wakes.as_raw_fd(),
            };
            let prepare = limits.prepare(role, &status);
            let (shared, options) = (Arc::clone(&it.shared), Arc::clone(&options));
            let of_loop = EventLoop::new(number, listeners, inbox, arrivals, shared, options)?;
            let (gate, begins) = mpsc::channel();
            it.running.fetch_add(1, Ordering::Relaxed);
            let end = End {
                running: Arc::clone(&it.running),
                ended: Arc::clone(ended),
            };
            let thread = std::thread::Builder::new()
                .name(format!("flash-loop-{number}"))
                .spawn(move || {
                    let _end = end;
                    prepare();
                    if begins.recv().is_err() {
                        return Ok(());
                    }
                    let done = of_loop.run();
                    if done.is_err() {
                        end_the_server();
                    }
                    done
                })
                .context("no thread for a loop")?;
            it.gates.push(gate);
            it.threads.push(thread);
        }
        // As many as threads, which all have their own limits before they see a client's work.
        drop(status);
        let logs = [&it.parts.log, &it.parts.messages].into_iter().flatten();
        let all = statuses.iter().chain(logs.map(|file| file.sandbox.clone()));
        let weakest = all.reduce(sandbox::Status::weaker);
        let weakest = weakest.unwrap_or_else(sandbox::Status::off);
        let _ = it.shared.sandbox.set(weakest);
        Ok(it)
    }

    fn of_sites(&self) -> sites::Before {
        let passwords = self.shared.passwords.as_ref();
        sites::Before {
            users: passwords.map_or(Vec::new(), |passwords| passwords.files.clone()),
            upstreams: self.upstreams.clone(),
            applications: None,
        }
    }

    /// The loops begin to accept.
    pub fn begin(&mut self) {
        let (spare, loops) = (&self.shared.spare, self.threads.len());
        spare.leave(self.connections, loops, self.open_files);
        for gate in self.gates.drain(..) {
            let _ = gate.send(());
        }
    }

    /// What the threads can still do.
    pub fn sandbox(&self) -> sandbox::Status {
        let status = self.shared.sandbox.get().cloned();
        status.unwrap_or_else(sandbox::Status::off)
    }

    /// Has the loops give their connections to those of `next`.
    pub fn hand_over(&mut self, next: &Generation) {
        let (sites, has_counts) = self.network.heirs(&next.network);
        for (number, arrivals) in self.arrivals.iter().enumerate() {
            let heir = &next.arrivals[number % next.arrivals.len()];
            arrivals.set_heir(Arc::clone(heir));
        }
        let _ = self.shared.heirs.set(Heirs {
            sites,
            has_counts,
            reach: next.reach.clone(),
        });
        // A socket that only the loops have is closed as soon as they have emptied its queue.
        self.network.ports.clear();
        self.enter(Phase::HandsOver);
    }

    /// Has the loops end with the requests that are there.
    pub fn end(&mut self) {
        self.network.ports.clear();
        self.enter(Phase::Ends);
    }

    fn enter(&self, phase: Phase) {
        self.shared.set_phase(phase);
        for arrivals in &self.arrivals {
            arrivals.wake();
        }
    }

    /// All earlier generations have ended.
    pub fn is_first(&self) {
        for arrivals in &self.arrivals {
            arrivals.complete();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// Waits for the loops, and ends the helpers and a log that no other generation has.
    ///
    /// # Errors
    ///
    /// A loop has failed.
    pub fn join(mut self) -> Result<()> {
        let mut ended = Ok(());
        for thread in self.threads.drain(..) {
            let of_loop = thread.join();
            let of_loop = of_loop.unwrap_or_else(|_| Err(anyhow::anyhow!("a loop has failed")));
            ended = ended.and(of_loop);
        }
        ended
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.gates.is_empty() {
            // It has never begun. Its addresses must be free for the next attempt.
            self.gates.clear();
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
        self.shared.helpers.end();
        if let Some(passwords) = &self.shared.passwords {
            passwords.pool.end();
        }
        let logs = [self.parts.log.take(), self.parts.messages.take()];
        let last = logs.into_iter().flatten().filter_map(Arc::into_inner);
        last.for_each(LogFile::end);
    }
}

/// Tells that a loop has ended.
struct End {
    running: Arc<AtomicUsize>,
    ended: Arc<OwnedFd>,
}

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            end_the_server();
        }
        self.running.fetch_sub(1, Ordering::Release);
        let _ = write(&self.ended, &1u64.to_ne_bytes());
    }
}

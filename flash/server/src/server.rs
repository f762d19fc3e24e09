//! Starts the loops, the helpers and the log, and ends them on a signal.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, set_tcp_nodelay};
use rustix::net::{bind, ipproto, listen, socket_with, AddressFamily, SocketFlags, SocketType};
use rustix::process::{getpid, getrlimit, kill_process, setrlimit, Resource, Rlimit, Signal};

use crate::access::limits::Limits as ClientLimits;
use crate::access::passwords::Passwords;
use crate::context::{Options, Shared, Site};
use crate::counts::Counts;
use crate::event_loop::{EventLoop, Listener};
use crate::helpers::pools::Pools;
use crate::helpers::{Inbox, Pool};
use crate::log::Log;
use crate::sandbox::{self, Paths, Role};
use crate::sites::{self, VirtualHost};
use crate::tls::Tls;
use crate::user::Identity;

/// Connections that wait to be accepted; the kernel's own limit is `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Open files that are no connection's: listening sockets, logs, what helpers have at hand.
const OTHER_FILES: usize = 256;
/// Threads that may wait for a device, unless the plan says otherwise.
pub const HELPERS: usize = 64;
/// Jobs that wait for a helper; a request beyond is answered with 503.
const QUEUE: usize = 4096;

/// What is to be served, and where.
pub struct Plan {
    /// The first one of an address also serves the names that none has.
    pub hosts: Vec<VirtualHost>,
    /// Where `/metrics` is.
    pub metrics: Option<SocketAddr>,
    pub loops: usize,
    pub helpers: usize,
    pub log: Option<PathBuf>,
    /// The user whose rights the process takes once the ports are open. Without one it keeps its own.
    pub user: Option<Identity>,
    /// Each thread is limited to what it needs.
    pub is_sandboxed: bool,
    pub options: Options,
}

impl Plan {
    /// As `flash serve` without options, but with no more connections than [`Options`] says.
    pub fn of(hosts: Vec<VirtualHost>) -> Plan {
        Plan {
            hosts,
            metrics: None,
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            helpers: HELPERS,
            log: None,
            user: None,
            is_sandboxed: true,
            options: Options::default(),
        }
    }
}

/// A server that runs.
pub struct Server {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<Inbox>>,
    loops: Vec<JoinHandle<Result<()>>>,
    log: Option<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    tls: Vec<Tls>,
    metrics: Option<SocketAddr>,
    limits: Limits,
    warnings: Vec<String>,
}

/// The sandbox as far as it is the same for all threads.
#[derive(Clone)]
struct Limits {
    paths: Option<Arc<Paths>>,
}

impl Limits {
    fn of(plan: &Plan) -> Limits {
        let tls = plan.hosts.iter().flat_map(|host| &host.tls);
        let pairs = tls.flat_map(|listen| &listen.settings.pairs);
        let locations = plan.hosts.iter().flat_map(|host| &host.locations);
        let pairs = pairs.flat_map(|pair| [pair.cert.clone(), pair.key.clone()]);
        let users = locations
            .clone()
            .filter_map(|location| location.auth.as_ref());
        let paths = Paths {
            roots: locations
                .map(|location| location.directory.clone())
                .collect(),
            loaded: pairs.chain(users.map(|auth| auth.file.clone())).collect(),
            log: plan.log.clone(),
        };
        Limits {
            paths: plan.is_sandboxed.then(|| Arc::new(paths)),
        }
    }

    fn enter(&self, role: Role) -> sandbox::Status {
        match &self.paths {
            Some(paths) => sandbox::enter(role, paths),
            None => sandbox::Status::off(),
        }
    }

    /// What a new thread does first.
    fn prepare(&self, role: Role, status: &Sender<sandbox::Status>) -> impl FnOnce() + Send {
        let (limits, status) = (self.clone(), status.clone());
        move || {
            // Somebody waits for it, unless the start has failed.
            let _ = status.send(limits.enter(role));
        }
    }
}

impl Server {
    /// # Errors
    ///
    /// A directory, an address or the log cannot be opened; the error names it.
    pub fn start(plan: Plan) -> Result<Server> {
        let limits = Limits::of(&plan);
        let listens = sites::listens(&plan.hosts)?;
        let loops = plan.loops.max(1);
        let mut listeners: Vec<Vec<Listener>> = (0..loops).map(|_| Vec::new()).collect();
        let mut tls = Vec::new();
        let mut addresses = Vec::new();
        let mut tls_addresses = Vec::new();
        for (number, listen) in listens.iter().enumerate() {
            let of_address = listen.tls.as_ref().map(Tls::load).transpose()?;
            let site = Site::Files(number);
            let address = listen_in_all(&mut listeners, listen.address, site, of_address.as_ref())?;
            match of_address {
                None => addresses.push(address),
                Some(of_address) => {
                    tls_addresses.push(address);
                    tls.push(of_address);
                }
            }
        }
        let mut metrics = None;
        if let Some(address) = plan.metrics {
            let socket = listen_at(address, false)?;
            metrics = Some(local_address(&socket)?);
            let site = Site::Counts;
            let tls = None;
            listeners[0].push(Listener { socket, site, tls });
        }
        // What comes now has no more rights than what is done again later.
        let mut warnings = Vec::new();
        if let Some(user) = &plan.user {
            user.assume()?;
            let failed = tls.iter().filter_map(|tls| tls.check().err());
            let name = user.name();
            warnings.extend(failed.map(|error| {
                format!("{name} will not be able to load certificates again: {error:#}")
            }));
        }
        let hosts = sites::open(&plan.hosts, &listens)?;
        let (status, statuses) = mpsc::channel();
        let (log, log_thread) = match &plan.log {
            Some(path) => {
                let (log, thread) = Log::start(path, limits.prepare(Role::Log, &status))?;
                (Some(log), Some(thread))
            }
            None => (None, None),
        };
        let few = (plan.helpers / 4).max(1);
        let helpers = Pools::start(sites::devices(&hosts), |is_for_missing, elsewhere| {
            let prepare = limits.prepare(Role::Helper, &status);
            let (name, threads) = match is_for_missing {
                true => ("flash-doubtful", few),
                false => ("flash-helper", plan.helpers),
            };
            let pool = Pool::start(name, threads, QUEUE, elsewhere, prepare);
            pool.context("no helper thread")
        })?;
        let users = sites::user_files(&hosts);
        let passwords = match users.is_empty() {
            true => None,
            false => {
                let prepare = limits.prepare(Role::Password, &status);
                let passwords = Passwords::start(plan.options.passwords, users, prepare);
                Some(passwords.context("no thread for passwords")?)
            }
        };
        let clients = &plan.options.limits;
        let shared = Arc::new(Shared {
            hosts,
            helpers,
            passwords,
            limits: clients
                .limit_something()
                .then(|| ClientLimits::new(clients.clone())),
            log,
            counts: (0..loops).map(|_| Counts::default()).collect(),
            sandbox: OnceLock::new(),
            ends: AtomicBool::new(false),
        });
        let options = Arc::new(plan.options);
        let mut server = Server {
            shared: Arc::clone(&shared),
            inboxes: Vec::new(),
            loops: Vec::new(),
            log: log_thread,
            addresses,
            tls_addresses,
            tls,
            metrics,
            limits: limits.clone(),
            warnings,
        };
        for (number, listeners) in listeners.into_iter().enumerate() {
            let inbox = Arc::new(Inbox::new().context("no descriptor for a loop")?);
            server.inboxes.push(Arc::clone(&inbox));
            let inbox_fd = inbox.wakes.as_raw_fd();
            let prepare = limits.prepare(Role::Loop { inbox: inbox_fd }, &status);
            let (shared, options) = (Arc::clone(&shared), Arc::clone(&options));
            let it = EventLoop::new(number, listeners, inbox, shared, options)?;
            let thread = std::thread::Builder::new()
                .name(format!("flash-loop-{number}"))
                .spawn(move || {
                    let _guard = PanicGuard;
                    prepare();
                    let done = it.run();
                    if done.is_err() {
                        end_the_server();
                    }
                    done
                })
                .context("no thread for a loop")?;
            server.loops.push(thread);
        }
        // As many as threads, which all have their own limits before they see a client's work.
        drop(status);
        let weakest = statuses.iter().reduce(sandbox::Status::weaker);
        let weakest = weakest.unwrap_or_else(sandbox::Status::off);
        let _ = shared.sandbox.set(weakest);
        Ok(server)
    }

    /// Where it listens, with the ports that the kernel chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What the threads can still do.
    pub fn sandbox(&self) -> sandbox::Status {
        let status = self.shared.sandbox.get().cloned();
        status.unwrap_or_else(sandbox::Status::off)
    }

    /// Limits the calling thread to what the one needs that owns the server.
    pub fn enter_sandbox(&self) -> sandbox::Status {
        self.limits.enter(Role::Main)
    }

    /// What is not as one would expect, and works nevertheless.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// Reads the files of all certificates again, one address after another.
    ///
    /// # Errors
    ///
    /// Those of the addresses that keep their certificates.
    pub fn reload_certificates(&self) -> Vec<anyhow::Error> {
        let failed = self.tls.iter().filter_map(|tls| tls.reload().err());
        failed.collect()
    }

    /// Reads all files of users again.
    ///
    /// # Errors
    ///
    /// Those of the files whose users stay as they are.
    pub fn reload_users(&self) -> Vec<anyhow::Error> {
        let passwords = self.shared.passwords.iter();
        let files = passwords.flat_map(|passwords| &passwords.files);
        let failed = files.filter_map(|file| file.reload().err());
        failed.collect()
    }

    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Opens the log again by its name, as after a rotation.
    pub fn reopen_log(&self) {
        if let Some(log) = &self.shared.log {
            log.reopen();
        }
    }

    /// Answers the requests that are there, and ends.
    ///
    /// # Errors
    ///
    /// A loop had failed before.
    pub fn end(self) -> Result<()> {
        self.shared.ends.store(true, Ordering::Relaxed);
        for inbox in &self.inboxes {
            inbox.wake();
        }
        let mut ended = Ok(());
        for thread in self.loops {
            let of_loop = thread.join();
            let of_loop = of_loop.unwrap_or_else(|_| Err(anyhow::anyhow!("a loop has failed")));
            ended = ended.and(of_loop);
        }
        if let Some(log) = &self.shared.log {
            log.end();
        }
        if let Some(thread) = self.log {
            let _ = thread.join();
        }
        ended
    }
}

/// A loop that fails takes the server with it: a server of fewer loops would look well and leave a part of its clients
/// without an answer.
fn end_the_server() {
    let _ = kill_process(getpid(), Signal::TERM);
}

struct PanicGuard;

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            end_the_server();
        }
    }
}

/// Raises the limit of open files as far as it goes, and returns how many connections it leaves room for: each may have
/// a file open.
pub fn room_for_connections() -> usize {
    let resource = Resource::Nofile;
    let limit = getrlimit(resource);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let current = match setrlimit(resource, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let files = current.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    });
    (files.saturating_sub(OTHER_FILES) / 2).max(1)
}

/// Has all loops listen at an address, and returns it with the port that the kernel may have chosen.
fn listen_in_all(
    listeners: &mut [Vec<Listener>],
    mut address: SocketAddr,
    site: Site,
    tls: Option<&Tls>,
) -> Result<SocketAddr> {
    // The loops share the port. Another server that shares its own would take a part of the clients.
    drop(listen_at(address, false)?);
    for of_loop in listeners {
        let socket = listen_at(address, true)?;
        address = local_address(&socket)?;
        of_loop.push(Listener {
            socket,
            site,
            tls: tls.map(|tls| Arc::clone(&tls.config)),
        });
    }
    Ok(address)
}

/// `is_shared`: by several sockets, among which the kernel distributes the connections.
fn listen_at(address: SocketAddr, is_shared: bool) -> Result<OwnedFd> {
    let open = || -> rustix::io::Result<OwnedFd> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        set_socket_reuseaddr(&socket, true)?;
        set_socket_reuseport(&socket, is_shared)?;
        // Accepted sockets inherit it.
        set_tcp_nodelay(&socket, true)?;
        bind(&socket, &address)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    open().with_context(|| format!("cannot listen at {address}"))
}

fn local_address(socket: &OwnedFd) -> Result<SocketAddr> {
    let copy = socket.try_clone().context("no descriptor")?;
    let address = TcpListener::from(copy).local_addr();
    address.context("a listening socket has no address")
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path server: flash's helpers for other servers. A client asks for a path, and gets a descriptor once name, inode
//! and first bytes are in memory (the thesis calls a server with such a backend Flashpache).

mod bring;
pub mod command;
mod figures;
mod peers;
pub mod protocol;
mod serving;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{bail, ensure, Context, Result};
use rustix::fs::{statx, AtFlags, StatxFlags, CWD};
use rustix::net::{
    bind, connect, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::descriptors;
use crate::ending::{end_the_server, PanicGuard};
use crate::files::Root;
use crate::helpers::{Device, Inbox, Pool};
use crate::ports;
use crate::sandbox::{self, Paths, Role};
use crate::user::Identity;
pub use bring::{Brought, How};
use peers::Rights;
use protocol::Place;
use serving::{Parts, Served, Serving, Wishes, CLIENTS};

/// Clients that wait to be accepted. A client beyond does without the path server.
const BACKLOG: i32 = 1024;
/// Jobs that wait for a helper of a device; there are no more than clients.
const QUEUE: usize = CLIENTS;

/// What the path server is to do.
pub struct Plan {
    /// A socket in the file system.
    pub listen: PathBuf,
    pub roots: Vec<PathBuf>,
    pub user: Option<Identity>,
    /// For each device.
    pub helpers: usize,
    /// Names that are kept open.
    pub keep: usize,
    pub metrics: Option<SocketAddr>,
    pub is_sandboxed: bool,
}

/// A path server that runs.
pub struct PathServer {
    thread: JoinHandle<Result<()>>,
    inbox: Arc<Inbox>,
    wishes: Arc<Wishes>,
    metrics: Option<SocketAddr>,
    sandbox: sandbox::Status,
}

impl PathServer {
    /// The calling process gives up all capabilities, and its thread is limited to what is left to do.
    ///
    /// # Errors
    ///
    /// A root, the socket or the address cannot be opened; the error names it.
    pub fn start(plan: Plan) -> Result<PathServer> {
        let listener = listen_at_path(&plan.listen)?;
        let counters = plan.metrics.map(ports::open_alone).transpose()?;
        let (counters, metrics) = counters.unzip();
        let files = descriptors::raise_limit().saturating_sub(descriptors::OTHER_FILES);
        descriptors::make_room(CLIENTS, plan.keep);
        if let Some(user) = &plan.user {
            user.assume()?;
        }
        peers::drop_capabilities()?;
        let mut paths = Vec::new();
        for root in &plan.roots {
            let path = std::path::absolute(root);
            paths.push(path.with_context(|| format!("{} has no path", root.display()))?);
        }
        let limits = plan.is_sandboxed.then(|| Paths {
            roots: paths.clone(),
            ..Paths::default()
        });
        let limits = Arc::new(limits);
        let (status, statuses) = mpsc::channel();
        let prepare = |role| preparation(&limits, role, &status);
        let (roots, pools) = open_roots(&paths, |name| {
            Pool::start(
                name,
                plan.helpers,
                QUEUE,
                Device::alone(),
                Arc::default(),
                prepare(Role::PathHelper),
            )
        })?;
        let inbox = Arc::new(Inbox::new().context("no descriptor for the loop")?);
        let wishes = Arc::new(Wishes::default());
        let serving = Serving::new(Parts {
            listener,
            counters,
            inbox: Arc::clone(&inbox),
            wishes: Arc::clone(&wishes),
            roots,
            pools,
            rights: Rights::own()?,
            // Each client may have a descriptor on its way.
            keep: plan.keep.min(files.saturating_sub(2 * CLIENTS)),
        })?;
        let prepare = prepare(Role::Paths {
            inbox: inbox.wakes.as_raw_fd(),
        });
        let thread = std::thread::Builder::new()
            .name("flash-paths".to_string())
            .spawn(move || {
                let _guard = PanicGuard;
                prepare();
                let done = serving.run();
                if done.is_err() {
                    end_the_server();
                }
                done
            })
            .context("no thread for the loop")?;
        drop(status);
        // As many as threads, which all have their own limits before they see a client's work.
        let weakest = statuses.iter().reduce(sandbox::Status::weaker);
        let own = enter(&limits, Role::Main);
        Ok(PathServer {
            thread,
            inbox,
            wishes,
            metrics,
            sandbox: weakest.map_or(own.clone(), |weakest| weakest.weaker(own)),
        })
    }

    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// What the threads can still do.
    pub fn sandbox(&self) -> &sandbox::Status {
        &self.sandbox
    }

    /// Closes what is kept open, as before a file system is unmounted.
    pub fn forget(&self) {
        self.wishes.forgets.store(true, Ordering::Relaxed);
        self.inbox.wake();
    }

    /// Clients that wait do without an answer.
    ///
    /// # Errors
    ///
    /// The loop had failed before.
    pub fn end(self) -> Result<()> {
        self.wishes.ends.store(true, Ordering::Relaxed);
        self.inbox.wake();
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(anyhow::anyhow!("the loop has failed")))
    }
}

/// What a new thread does first.
fn preparation(
    limits: &Arc<Option<Paths>>,
    role: Role,
    status: &Sender<sandbox::Status>,
) -> impl FnOnce() + Send + 'static {
    let (limits, status) = (Arc::clone(limits), status.clone());
    move || {
        // Somebody waits for it, unless the start has failed.
        let _ = status.send(enter(&limits, role));
    }
}

fn enter(limits: &Option<Paths>, role: Role) -> sandbox::Status {
    match limits {
        Some(paths) => sandbox::enter(role, paths),
        None => sandbox::Status::off(),
    }
}

type Pools = Vec<(String, Arc<Pool>)>;

/// The roots, with a pool of helpers for each device.
fn open_roots(
    paths: &[PathBuf],
    start: impl Fn(&'static str) -> std::io::Result<Arc<Pool>>,
) -> Result<(Vec<Served>, Pools)> {
    let mut pools: Pools = Vec::new();
    let mut roots = Vec::new();
    for path in paths {
        let root = Arc::new(Root::open(path)?);
        let place = place(path)?;
        let device = format!("{}:{}", place.device.0, place.device.1);
        let pool = match pools.iter().find(|(name, _)| *name == device) {
            Some((_, pool)) => Arc::clone(pool),
            None => {
                let pool = start("flash-helper").context("no helper thread")?;
                pools.push((device, Arc::clone(&pool)));
                pool
            }
        };
        roots.push(Served {
            path: path.as_os_str().as_bytes().to_vec(),
            root,
            place,
            pool,
        });
    }
    // The longest path is the nearest root.
    roots.sort_by_key(|root| std::cmp::Reverse(root.path.len()));
    Ok((roots, pools))
}

fn place(path: &Path) -> Result<Place> {
    let status = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    let status = status.with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(Place::of(&status))
}

/// A socket to which everybody can connect; who may ask is decided by the rights of the client.
fn listen_at_path(path: &Path) -> Result<OwnedFd> {
    let shown = path.display();
    let address = SocketAddrUnix::new(path)
        .with_context(|| format!("{shown} is too long for a socket: it may have 107 bytes"))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    match path.symlink_metadata() {
        Ok(found) => {
            ensure!(
                found.file_type().is_socket(),
                "{shown} exists and is no socket: name another path after --listen"
            );
            match connect(&socket()?, &address) {
                Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path)
                    .with_context(|| format!("cannot remove the socket {shown}"))?,
                _ => bail!(
                    "somebody listens at {shown}: end it, or name another path after --listen"
                ),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
    }
    let socket = socket().context("no socket")?;
    bind(&socket, &address).with_context(|| format!("cannot listen at {shown}"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
        .with_context(|| format!("cannot make the socket {shown} reachable"))?;
    listen(&socket, BACKLOG).with_context(|| format!("cannot listen at {shown}"))?;
    Ok(socket)
}

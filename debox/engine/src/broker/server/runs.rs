// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions for one client, each with a thread of its own.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use nix::sys::socket;

use super::{Broker, Connection, Run};
use crate::broker::listener::refuse;
use crate::broker::protocol::RunWish;
use crate::broker::run;
use crate::broker::run_limits::RunLimits;

impl Broker {
    /// Gives a client a session of its own, with a thread that waits for it, since this thread does not.
    pub(super) fn begin_run(&mut self, connection: Connection, wish: RunWish) {
        let Connection {
            socket,
            peer,
            owner,
            ..
        } = connection;
        self.end_runs(JoinHandle::is_finished); // what ended since the last tick
        if let Err(refusal) = self.quota.begin_run(owner, Instant::now()) {
            self.refuse(&socket, &peer, refusal);
            return self.quota.disconnect(owner);
        }
        let (account, budget, log) = (&self.account, &self.budget, &self.log);
        let terms = Arc::new(RunLimits::new(owner, account, budget, log));
        let started = socket.try_clone().and_then(|own| {
            let name = "debox-run".to_string();
            let terms = Arc::clone(&terms);
            let serve = move || {
                // The result only matters to the client, which has received it or has gone.
                let _ = run::serve(&own, &peer, wish, &terms);
                let _ = socket::shutdown(own.as_raw_fd(), socket::Shutdown::Both);
            };
            std::thread::Builder::new().name(name).spawn(serve)
        });
        match started {
            Ok(thread) => self.runs.push(Run {
                owner,
                socket,
                terms,
                thread,
            }),
            Err(error) => {
                refuse(&socket, &error.to_string());
                self.quota.end_run(owner);
                self.quota.disconnect(owner);
            }
        }
    }

    /// Joins the threads of the runs that are over, and takes back what they had.
    pub(super) fn end_runs(&mut self, is_over: impl Fn(&JoinHandle<()>) -> bool) {
        let (over, others) = self.runs.drain(..).partition(|run| is_over(&run.thread));
        self.runs = others;
        let over: Vec<Run> = over;
        for run in over {
            let _ = run.thread.join();
            self.held_of_runs.append(&mut run.terms.given());
            self.quota.end_run(run.owner);
            self.quota.disconnect(run.owner);
        }
    }
}

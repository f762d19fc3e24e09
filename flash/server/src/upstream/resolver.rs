// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resolves the names of upstreams again, in a thread of its own: it may take as long as it wants.

use std::sync::mpsc::{self, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::{resolve, Upstream};

pub struct Resolver {
    asks: Sender<()>,
    thread: JoinHandle<()>,
}

impl Resolver {
    /// `prepare` is called in the new thread.
    ///
    /// # Errors
    ///
    /// There is no thread.
    pub fn start(
        upstreams: Vec<Arc<Upstream>>,
        prepare: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Resolver> {
        let (asks, asked) = mpsc::channel();
        let run = move || {
            prepare();
            while asked.recv().is_ok() {
                // Several signals are one.
                while asked.try_recv().is_ok() {}
                upstreams.iter().for_each(|upstream| again(upstream));
            }
        };
        let builder = std::thread::Builder::new().name("flash-resolver".to_string());
        let thread = builder.spawn(run)?;
        Ok(Resolver { asks, thread })
    }

    pub fn resolve_again(&self) {
        // The thread ends with the server only.
        let _ = self.asks.send(());
    }

    /// Ends the thread, unless a name server keeps it.
    pub fn end(self) {
        drop(self.asks);
        if self.thread.is_finished() {
            let _ = self.thread.join();
        }
    }
}

fn again(upstream: &Upstream) {
    match resolve(&upstream.plan.to) {
        Ok(endpoints) if endpoints == **upstream.endpoints.load() => {}
        Ok(endpoints) => upstream.endpoints.store(Arc::new(endpoints)),
        Err(error) => {
            let text = format!("the addresses in use stay: {error:#}");
            kit_console::say_error("flash", &text);
        }
    }
}

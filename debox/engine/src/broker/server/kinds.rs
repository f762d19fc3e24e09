//! The kinds of sessions that are loaded, and the clients that wait for one.

use std::time::{Duration, Instant};

use anyhow::{anyhow, Result};

use super::{Broker, Connection, Stage, USUAL, USUAL_UNUSED};
use crate::broker::cpu;
use crate::broker::loading::Order;
use crate::broker::protocol::Wish;
use crate::broker::shared::Kind;

impl Broker {
    /// Loads the probes of a kind, unless they are being loaded. There are few kinds, and each is loaded once.
    pub(super) fn load(&mut self, kind: Kind, owner: u32, is_again: bool) -> Result<()> {
        if self.loadings.has(kind) {
            return Ok(());
        }
        let order = Order {
            kind,
            owner,
            memory_of: (kind != USUAL).then_some(owner),
            is_again,
        };
        let limits = self.quota.limits;
        self.loadings
            .begin(order, limits, &self.account, &self.budget)
    }

    /// Admits the clients whose probes are now loaded.
    pub(super) fn finish_loading(&mut self) {
        for (order, opened) in self.loadings.take_ended() {
            let refused = match opened {
                Ok(session) => {
                    self.sessions.push(session);
                    None
                }
                // Other sessions make room, once.
                Err(_) if !order.is_again && self.unload(Duration::ZERO, USUAL_UNUSED) => {
                    match self.load(order.kind, order.owner, true) {
                        Ok(()) => continue,
                        Err(why) => Some(why),
                    }
                }
                Err(why) => Some(why),
            };
            let waits = |connection: &Connection| match connection.stage {
                Stage::Waits(wish) if Kind::of(&wish) == order.kind => Some(wish),
                _ => None,
            };
            let waiting: Vec<(u64, Wish)> = self
                .connections
                .iter()
                .filter_map(|(number, connection)| Some((*number, waits(connection)?)))
                .collect();
            for (number, wish) in waiting {
                let Some(connection) = self.connections.remove(&number) else {
                    continue;
                };
                let (owner, before) = (connection.owner, cpu::of_thread());
                let next = match &refused {
                    None => self.enable(&connection, wish),
                    Some(why) => Err(anyhow!("{why:#}")),
                };
                let next = self.or_refused(&connection, next);
                self.go_on(number, connection, next);
                let spent = cpu::of_thread().saturating_sub(before);
                self.budget.charge(owner, spent, Instant::now());
            }
        }
    }

    /// Unloads the probes that no client has used for `unused`, and the usual ones after `usual_unused`;
    /// returns whether there were any.
    pub(super) fn unload(&mut self, unused: Duration, usual_unused: Duration) -> bool {
        let before = self.sessions.len();
        self.sessions.retain(|shared| {
            !shared.is_idle_for(match shared.kind {
                USUAL => usual_unused,
                _ => unused,
            })
        });
        self.sessions.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, Options};
    use super::*;

    #[test]
    fn the_usual_probes_are_unloaded_and_loaded_again() {
        if !crate::kernel::has_bpf_privilege() {
            return debox_skipped::skipped("a broker of its own: it takes root");
        }
        let place = tempfile::tempdir().expect("a directory");
        let options = Options {
            socket: place.path().join("socket"),
            limits: Limits::default(),
            subordinates: "/dev/null".into(),
        };
        let mut broker = Broker::start(&options).expect("probes can be loaded");
        assert!(!broker.unload(Duration::ZERO, USUAL_UNUSED));
        assert_eq!(broker.counts()["sessions"], 1);
        assert!(broker.unload(Duration::ZERO, Duration::ZERO));
        assert_eq!(broker.counts()["sessions"], 0);
        broker.load(USUAL, 7, false).expect("a thread");
        broker.load(USUAL, 8, false).expect("there is one");
        let end = Instant::now() + Duration::from_secs(120);
        while broker.counts()["sessions"] == 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            broker.finish_loading();
        }
        assert_eq!(broker.counts()["sessions"], 1);
        assert!(broker.loadings.ends().next().is_none());
    }
}

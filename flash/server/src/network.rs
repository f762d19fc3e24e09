// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses of a configuration, and what is shown there.

use std::sync::Arc;

use anyhow::Result;

use crate::address::Address;
use crate::context::Site;
use crate::event_loop::Listener;
use crate::plan::Plan;
use crate::ports::{Port, Sharing, Sources};
use crate::sites::{self, Listen};
use crate::tls::Tls;

/// The addresses of a configuration, which are open, and their certificates.
pub struct Network {
    pub listens: Vec<Listen>,
    /// By the places of `listens`; behind them is that of the counters.
    pub ports: Vec<Port>,
    tls: Vec<Option<Tls>>,
}

impl Network {
    /// # Errors
    ///
    /// A certificate cannot be loaded, or an address not be listened at; the error names it.
    pub fn open(plan: &Plan, before: Option<&Network>) -> Result<Network> {
        let listens = sites::listens(&plan.hosts)?;
        let tls_of = |listen: &Listen| {
            let same = before.and_then(|before| before.tls_at(listen));
            let settings = listen.tls.as_ref();
            settings
                .map(|settings| Tls::load_after(settings, same))
                .transpose()
        };
        let tls = listens.iter().map(tls_of).collect::<Result<Vec<_>>>()?;
        let of_loops = Sharing::Several(plan.loops.max(1));
        let addresses = listens
            .iter()
            .map(|listen| (listen.address.clone(), of_loops));
        let counts = plan.metrics.clone().map(|address| (address, Sharing::One));
        let wanted: Vec<_> = addresses.chain(counts).collect();
        let sources = Sources {
            before: before.map_or(&[][..], |before| &before.ports),
            passed: &plan.passed,
            unix: &plan.unix,
        };
        let ports = sources.open(&wanted)?;
        Ok(Network {
            listens,
            ports,
            tls,
        })
    }

    pub fn tls_at(&self, listen: &Listen) -> Option<&Tls> {
        let mut all = self.listens.iter().zip(&self.tls);
        let (_, tls) = all.find(|(its, _)| its.address == listen.address)?;
        tls.as_ref()
    }

    pub fn has(&self, address: &Address) -> bool {
        self.ports.iter().any(|port| port.is_at(address))
    }

    pub fn tls(&self) -> impl Iterator<Item = &Tls> {
        self.tls.iter().flatten()
    }

    /// In the order of the configuration.
    pub fn ports(&self, is_tls: bool) -> impl Iterator<Item = &Port> {
        let all = self.ports.iter().zip(&self.tls);
        all.filter(move |(_, tls)| tls.is_some() == is_tls)
            .map(|(port, _)| port)
    }

    pub fn counts(&self) -> Option<&Port> {
        self.ports.get(self.listens.len())
    }

    /// Where connections go on if `next` is in force.
    pub fn heirs(&self, next: &Network) -> (Vec<Option<usize>>, bool) {
        let all = self.ports.iter().zip(&self.tls);
        let place_of = |(port, tls): (&Port, &Option<Tls>)| {
            let mut nexts = next.ports.iter().zip(&next.tls);
            nexts.position(|(its, its_tls)| its.is_same(port) && its_tls.is_some() == tls.is_some())
        };
        let has_counts = match (self.counts(), next.counts()) {
            (Some(port), Some(its)) => its.is_same(port),
            _ => false,
        };
        (all.map(place_of).collect(), has_counts)
    }

    /// By the numbers of the loops.
    pub fn listeners(&self, loops: usize) -> Vec<Vec<Listener>> {
        let mut listeners: Vec<Vec<Listener>> = (0..loops).map(|_| Vec::new()).collect();
        for (place, (port, tls)) in self.ports.iter().zip(&self.tls).enumerate() {
            for (number, socket) in port.of_loops(loops) {
                listeners[number].push(Listener {
                    socket,
                    site: Site::Files(place),
                    tls: tls.as_ref().map(|tls| Arc::clone(&tls.config)),
                });
            }
        }
        for (_, socket) in self.counts().into_iter().flat_map(|port| port.of_loops(1)) {
            listeners[0].push(Listener {
                socket,
                site: Site::Counts,
                tls: None,
            });
        }
        listeners
    }
}

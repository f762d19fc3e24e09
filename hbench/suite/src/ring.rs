// SPDX-License-Identifier: MIT OR Apache-2.0
//! A token goes around a ring of processes through pipes; each process reads some memory before it passes the
//! token on. One process that does the same with as many pipes shows what this takes without switches.

use std::io::{PipeReader, PipeWriter, Read, Write};

use crate::benchmark::{verify, Available, Failure};
use crate::sampler::{Measured, Sampler};
use crate::sys::{Chunk, Peer};

#[derive(Debug)]
pub struct Ring {
    members: usize,
    /// Memory that each process reads.
    pub bytes: usize,
}

impl Ring {
    /// `variant`: as in `8-processes-16K`.
    pub fn of(variant: &str, sampler: &Sampler) -> Result<Ring, Failure> {
        let mut parts = variant.split('-');
        let members = parts.next().and_then(|count| count.parse().ok());
        let size = parts.nth(1).unwrap_or_default();
        Ok(Ring {
            members: members.ok_or_else(|| Failure::Wrong(format!("no ring: {variant}")))?,
            bytes: sampler.size(size)?,
        })
    }

    pub fn region_bytes(&self) -> usize {
        (self.members * self.bytes).max(8)
    }

    /// `piece`: the memory of a process; called in that process for its own, and in this one for the
    /// comparison.
    pub fn measure<'a>(
        &self,
        sampler: &mut Sampler,
        piece: impl Fn(usize) -> Chunk<'a>,
    ) -> Result<Measured, Failure> {
        let mut pipes: Vec<(PipeReader, PipeWriter)> = Vec::new();
        for _ in 0..self.members {
            pipes.push(std::io::pipe().available("pipe")?);
        }
        sampler.shares_cpu();
        let cpu = sampler.second_cpu("one-cpu")?;
        let mut others = Vec::new();
        for member in 1..self.members {
            // Copies are the other process's alone.
            let mut from = pipes[member].0.try_clone().available("dup")?;
            let mut to = pipes[(member + 1) % self.members]
                .1
                .try_clone()
                .available("dup")?;
            let piece = &piece;
            others.push(Peer::start(cpu, move || {
                let memory = piece(member);
                loop {
                    let token = receive(&mut from)?;
                    std::hint::black_box(memory.read());
                    pass(&mut to, token + 1)?;
                }
            })?);
        }
        let mut to_first = pipes[1 % self.members].1.try_clone().available("dup")?;
        let mut from_last = pipes[0].0.try_clone().available("dup")?;
        let mut own = Vec::new();
        for _ in 0..self.members {
            own.push(std::io::pipe().available("pipe")?);
        }
        let pieces: Vec<Chunk> = (0..self.members).map(&piece).collect();
        let members = self.members as u64;
        let around = |n: u64| {
            let mut token = 0;
            for circle in 1..=n {
                pass(&mut to_first, token + 1)?;
                token = receive(&mut from_last)?;
                std::hint::black_box(pieces[0].read());
                verify(token == circle * members, || format!("token {token}"))?;
            }
            Ok(())
        };
        let alone = |n: u64| {
            let mut token = 0;
            for _ in 0..n {
                for ((from, to), memory) in own.iter_mut().zip(&pieces) {
                    pass(to, token + 1)?;
                    token = receive(from)?;
                    std::hint::black_box(memory.read());
                }
            }
            verify(token == n * members, || format!("token {token}"))
        };
        Ok(sampler.time_less(around, alone)?.times(members))
    }
}

fn receive(from: &mut PipeReader) -> Result<u64, Failure> {
    let mut token = [0; 8];
    from.read_exact(&mut token).available("read")?;
    Ok(u64::from_ne_bytes(token))
}

fn pass(to: &mut PipeWriter, token: u64) -> Result<(), Failure> {
    to.write_all(&token.to_ne_bytes()).available("write")
}

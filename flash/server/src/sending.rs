// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends an answer, piece by piece, and never waits for the disk.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::sendfile;
use rustix::io::Errno;

use crate::answer::{Reply, Segment};
use crate::contents::Found;
use crate::files::File;
use crate::helpers::Work;
use crate::http::request::Request;
use crate::residency::{Ready, BROUGHT};
use crate::stages::LoopState;
use crate::transport::{Transport, ENCRYPTED};

/// Memory may be so short that what was brought is gone before it is sent: after so many times the helper's own copy
/// is sent.
const TRIES: u32 = 2;
/// A call that takes longer has waited for something.
const STALL_NS: u128 = 1_000_000;

pub struct Sending {
    pub request: Option<Box<Request>>,
    pub status: u16,
    pub closes: bool,
    /// A helper brings the next bytes.
    pub waits: bool,
    /// How often it has brought the bytes at this place.
    pub brought: u32,
    /// Calls that waited although they should not.
    pub stalls: u64,
    /// Parts of files that were at hand, where the file system does not tell what is in memory.
    pub kept: u64,
    /// The end of the socket follows the answer at once, so the kernel keeps the last bytes and sends both in one packet.
    pub holds_end: bool,
    head: Vec<u8>,
    head_sent: usize,
    body: VecDeque<Segment>,
    body_sent: u64,
    /// What is recorded of the body, if others have sent most of it.
    recorded: Option<u64>,
    /// A helper reads the next bytes because the file system does not tell what is in memory.
    is_untold: bool,
    has_failed: bool,
}

pub enum Progress {
    /// So many bytes.
    Sent(u64),
    Done,
    /// A helper has to do this first.
    Bring(Work),
    /// The file has become shorter than the head says, or cannot be read.
    Short,
    /// It is another connection's turn.
    Budget,
    /// More would be faster than it may be, until this time in the loop's milliseconds.
    Metered(u64),
}

impl Sending {
    pub fn new(request: Option<Box<Request>>, reply: Reply, closes: bool) -> Sending {
        Sending {
            request,
            status: reply.status,
            closes,
            waits: false,
            brought: 0,
            stalls: 0,
            kept: 0,
            holds_end: false,
            head: reply.head,
            head_sent: 0,
            body: reply.body,
            body_sent: 0,
            recorded: None,
            is_untold: false,
            has_failed: false,
        }
    }

    /// The end of an answer that has been sent up to here, with so many bytes of content in all.
    pub fn rest(
        request: Option<Box<Request>>,
        status: u16,
        bytes: Vec<u8>,
        content: u64,
        closes: bool,
    ) -> Sending {
        let reply = Reply {
            status,
            head: bytes,
            body: VecDeque::new(),
        };
        Sending {
            recorded: Some(content),
            ..Sending::new(request, reply, closes)
        }
    }

    /// Bytes that go before the head, of which none has been sent.
    pub fn prepend(&mut self, mut bytes: Vec<u8>) {
        bytes.append(&mut self.head);
        self.head = bytes;
    }

    pub fn has_begun(&self) -> bool {
        self.head_sent > 0 || self.recorded.is_some()
    }

    pub fn body_sent(&self) -> u64 {
        self.recorded.unwrap_or(self.body_sent)
    }

    /// Bytes of the part that comes next, read by a helper.
    pub fn put(&mut self, bytes: Segment) {
        if let Some(Segment::File { part, .. }) = self.body.front_mut() {
            part.begin += bytes.left();
            if part.begin >= part.end {
                self.body.pop_front();
            }
            self.body.push_front(bytes);
        }
    }

    /// The file, and where in it the bytes are that a helper reads because the file system does not tell.
    pub fn untold(&self) -> Option<(&Arc<File>, u64)> {
        match self.body.front() {
            Some(Segment::File { file, part }) if self.is_untold => Some((file, part.begin)),
            _ => None,
        }
    }

    /// The bytes that come next cannot be read.
    pub fn fails(&mut self) {
        self.has_failed = true;
    }

    /// The file that comes next has become shorter.
    pub fn mark_stale(&self) {
        if let Some(Segment::File { file, .. }) = self.body.front() {
            file.is_stale.store(true, Ordering::Relaxed);
        }
    }

    /// One call, at most, that sends so many bytes of the body at most. `buffer`: for what is copied.
    pub fn step(
        &mut self,
        transport: &mut Transport,
        socket: &OwnedFd,
        stage: &mut LoopState,
        buffer: &mut [u8],
        most: usize,
        now: u64,
    ) -> Result<Progress, Errno> {
        let copies = !transport.takes_files();
        // What is encrypted at once need not be read in larger pieces.
        let room = if copies { ENCRYPTED } else { buffer.len() };
        let buffer = &mut buffer[..room.min(most)];
        self.is_untold = false;
        if self.has_failed {
            return Ok(Progress::Short);
        }
        while self.body.front().is_some_and(|next| next.left() == 0) {
            self.body.pop_front();
        }
        let head = &self.head[self.head_sent..];
        let length = match self.body.front() {
            None if head.is_empty() => {
                transport.flush(socket)?;
                return Ok(Progress::Done);
            }
            None => transport.send(socket, head, &[], self.holds_end)?,
            Some(Segment::Bytes(bytes)) => {
                let goes_on = self.holds_end || self.has_next();
                let bytes = &bytes[..bytes.len().min(most)];
                transport.send(socket, head, bytes, goes_on)?
            }
            Some(Segment::Shared { bytes, sent }) => {
                let goes_on = self.holds_end || self.has_next();
                let bytes = &bytes[*sent..];
                let bytes = &bytes[..bytes.len().min(most)];
                transport.send(socket, head, bytes, goes_on)?
            }
            Some(Segment::File { file, part }) => {
                let was_brought = self.brought > 0;
                let (begin, end) = (part.begin, part.end);
                let end = end.min(begin.saturating_add(most as u64));
                match stage.look(file, begin, end, was_brought, copies, buffer) {
                    Ready::Copied(length) => {
                        let is_end = self.body.len() == 1 && begin + length as u64 == part.end;
                        let goes_on = self.holds_end && is_end;
                        transport.send(socket, head, &buffer[..length], goes_on)?
                    }
                    Ready::Resident(length) => {
                        let length = length as usize;
                        let called = Instant::now();
                        let sent = match stage.sends_from(file) {
                            Some(mapping) => mapping.send(socket, head, begin, length),
                            None => send_file(transport, socket, head, file, (begin, length)),
                        };
                        self.stalls += u64::from(called.elapsed().as_nanos() > STALL_NS);
                        match sent {
                            Ok(0) | Err(Errno::FAULT) => return Ok(Progress::Short),
                            sent => sent?,
                        }
                    }
                    Ready::Absent if self.brought < TRIES => {
                        return Ok(Progress::Bring(Work::Warm {
                            file: Arc::clone(file),
                            begin: part.begin,
                            end: part.end.min(part.begin + BROUGHT),
                        }));
                    }
                    told @ (Ready::Absent | Ready::Unknown) => {
                        self.is_untold = told == Ready::Unknown;
                        let kept = match self.is_untold {
                            true => stage.contents.find(file, begin, now),
                            false => None,
                        };
                        if let Some(kept) = kept {
                            let bytes = what_is_kept(kept, part.end - begin);
                            self.put(bytes);
                            self.kept += 1;
                            return self.step(transport, socket, stage, buffer, most, now);
                        }
                        return Ok(Progress::Bring(Work::Read {
                            file: Arc::clone(file),
                            begin: part.begin,
                            end: part.end,
                        }));
                    }
                    Ready::Short | Ready::Failed(_) => return Ok(Progress::Short),
                }
            }
        };
        self.advance(length);
        Ok(Progress::Sent(length as u64))
    }

    /// Whether bytes follow those of the part that is sent. The kernel keeps back what is said to go on, for 200 ms if
    /// nothing comes.
    fn has_next(&self) -> bool {
        self.body.iter().skip(1).any(|part| part.left() > 0)
    }

    /// So many bytes went out, the head's first.
    fn advance(&mut self, length: usize) {
        let of_head = length.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        let of_body = length - of_head;
        if of_body == 0 {
            return;
        }
        self.body_sent += of_body as u64;
        match self.body.front_mut() {
            Some(Segment::Bytes(bytes)) => {
                bytes.drain(..of_body);
            }
            Some(Segment::Shared { sent, .. }) => *sent += of_body,
            Some(Segment::File { part, .. }) => {
                part.begin += of_body as u64;
                self.brought = 0;
            }
            None => {}
        }
    }
}

/// At most so many of the bytes that are kept.
fn what_is_kept(found: Found, most: u64) -> Segment {
    let Found { bytes, from } = found;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    match bytes.len() - from > most {
        true => Segment::Bytes(bytes[from..from + most].to_vec()),
        false => Segment::Shared { bytes, sent: from },
    }
}

/// Sends the head, and by `sendfile` what of the file is known to be in memory.
fn send_file(
    transport: &mut Transport,
    socket: &OwnedFd,
    head: &[u8],
    file: &File,
    (mut begin, length): (u64, usize),
) -> Result<usize, Errno> {
    let of_head = match head.is_empty() {
        true => 0,
        false => transport.send(socket, head, &[], true)?,
    };
    if of_head < head.len() {
        return Ok(of_head);
    }
    match sendfile(socket, &file.fd, Some(&mut begin), length) {
        // The file is shorter now, which the next call finds out.
        Ok(0) | Err(Errno::AGAIN) if of_head > 0 => Ok(of_head),
        sent => Ok(of_head + sent?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Lookup, Root};
    use crate::http::ranges::Part;

    /// What goes on is kept back by the kernel.
    #[test]
    fn what_a_helper_has_read_goes_on_only_if_something_follows() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("a"), "0123456789").expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let Lookup::Found(file) = root.open_waiting(b"a") else {
            panic!("it is there");
        };
        let part = Part { begin: 0, end: 10 };
        let of_file = |part| Segment::File {
            file: Arc::clone(&file),
            part,
        };
        let sending = |body: Vec<Segment>| {
            let reply = Reply {
                status: 200,
                head: Vec::new(),
                body: body.into(),
            };
            Sending::new(None, reply, false)
        };
        let mut whole = sending(vec![of_file(part)]);
        whole.put(b"01234".to_vec().into());
        assert!(whole.has_next());
        whole.body.pop_front();
        whole.put(b"56789".to_vec().into());
        assert!(!whole.has_next());
        let nothing = Segment::Bytes(Vec::new());
        let mut parts = sending(vec![of_file(part), nothing, of_file(part)]);
        parts.put(b"0123456789".to_vec().into());
        assert!(parts.has_next());
        parts.body.pop_back();
        assert!(!parts.has_next());
    }
}

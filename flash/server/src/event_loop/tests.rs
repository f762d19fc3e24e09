// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a loop does when it has as many connections as it may have.

use super::*;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::connection::tests::{context, new_epoll};
use crate::context::Heirs;
use crate::handover::Moved;
use crate::sandbox::Reach;

/// Listeners by their places in the loop.
const FILES: usize = 0;
const COUNTS: usize = 1;

struct Few {
    it: EventLoop,
    addresses: Vec<SocketAddr>,
}

impl Few {
    /// A loop that may have so many connections. The test is what calls it.
    fn of(most: usize) -> Few {
        let context = context(Vec::new(), new_epoll());
        let options = Options {
            max_connections: most,
            ..Options::default()
        };
        let mut addresses = Vec::new();
        let listeners = [Site::Files(0), Site::Counts].map(|site| {
            let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
            socket.set_nonblocking(true).expect("a socket");
            addresses.push(socket.local_addr().expect("an address"));
            Listener {
                socket: Arc::new(socket.into()),
                site,
                tls: None,
            }
        });
        let arrivals = Arc::new(Arrivals::new(Arc::clone(&context.inbox)));
        let (inbox, shared) = (Arc::clone(&context.inbox), Arc::clone(&context.shared));
        let it = EventLoop::new(
            0,
            listeners.to_vec(),
            inbox,
            arrivals,
            shared,
            Arc::new(options),
        );
        Few {
            it: it.expect("a loop"),
            addresses,
        }
    }

    /// A client that connects at this time.
    fn connect(&mut self, listener: usize, now: u64) -> TcpStream {
        let client = TcpStream::connect(self.addresses[listener]).expect("it listens");
        client.set_nonblocking(true).expect("a socket");
        self.it.context.now = now;
        self.it.accept(listener);
        client
    }

    fn is_waited_for(&self, listener: usize) -> bool {
        let mut events = Vec::with_capacity(EVENTS);
        let at_once = Timespec::default();
        let waited = epoll::wait(&self.it.epoll, spare_capacity(&mut events), Some(&at_once));
        waited.expect("a descriptor");
        let name = FIRST_LISTENER + listener as u64;
        events.iter().any(|event| event.data.u64() == name)
    }
}

/// Whether the server has closed the connection. It ends with a reset if the server had not read all that the client sent.
fn is_closed(mut client: &TcpStream) -> bool {
    match client.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn the_longest_idle_connection_makes_room() {
    let mut few = Few::of(2);
    let first = few.connect(FILES, 0);
    let second = few.connect(FILES, 10);
    // They may just be about to send a request.
    let third = few.connect(FILES, 500);
    assert_eq!(few.it.connections.len(), 2);
    assert!(!few.is_waited_for(FILES));
    few.it.context.now = 1500;
    few.it.unpause().expect("a descriptor");
    assert!(few.is_waited_for(FILES));
    few.it.accept(FILES);
    assert_eq!(few.it.connections.len(), 2);
    assert!(is_closed(&first) && !is_closed(&second) && !is_closed(&third));
}

#[test]
fn a_request_on_its_way_is_not_lost() {
    let mut few = Few::of(1);
    let mut first = few.connect(FILES, 0);
    first.write_all(b"G").expect("room");
    let _second = few.connect(FILES, 5000);
    assert_eq!(few.it.connections.len(), 1);
    assert!(!is_closed(&first));
}

#[test]
fn counters_are_read_although_there_is_no_room() {
    let mut few = Few::of(1);
    let _first = few.connect(FILES, 0);
    let _second = few.connect(FILES, 10);
    assert!(!few.is_waited_for(FILES));
    let _reader = few.connect(COUNTS, 20);
    assert_eq!(few.it.connections.len(), 2);
    let _next = TcpStream::connect(few.addresses[COUNTS]).expect("it listens");
    assert!(few.is_waited_for(COUNTS) && !few.is_waited_for(FILES));
    few.it.context.now = 200;
    few.it.unpause().expect("a descriptor");
    assert!(few.is_waited_for(COUNTS) && few.is_waited_for(FILES));
}

#[test]
fn connections_are_handed_over_in_pieces() {
    let mut few = Few::of(200);
    let clients: Vec<TcpStream> = (0..150).map(|_| few.connect(FILES, 0)).collect();
    let heir = Arc::new(Arrivals::new(Arc::clone(&few.it.context.inbox)));
    few.it.arrivals.set_heir(Arc::clone(&heir));
    let heirs = Heirs {
        sites: vec![Some(0)],
        has_counts: false,
        reach: Reach::default(),
    };
    let shared = &few.it.context.shared;
    assert!(shared.heirs.set(heirs).is_ok());
    shared.set_phase(Phase::HandsOver);
    few.it.look_at_phase();
    few.it.leave_in_pieces();
    let first = 150 - few.it.connections.len();
    assert!((1..100).contains(&first), "{first}");
    let timeout = few.it.timeout().expect("it goes on");
    assert_eq!((timeout.tv_sec, timeout.tv_nsec), (0, 0));
    for _ in 0..10 {
        few.it.leave_in_pieces();
    }
    assert!(few.it.connections.is_empty());
    let moved: Vec<Moved> = std::iter::from_fn(|| heir.take()).collect();
    assert_eq!(moved.len(), 150);
    assert!(!clients.iter().any(is_closed));
}

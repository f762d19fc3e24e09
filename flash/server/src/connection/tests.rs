// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::access::remembered::{self, Remembered};
use crate::context::{Options, Phase, Shared};
use crate::counts::Counts;
use crate::files::Lookup;
use crate::helpers::pools::Pools;
use crate::helpers::{Inbox, Pool};
use crate::http::request::Parsed;
use crate::pace::Pace;
use crate::sites::{FileOptions, Hosts};
use crate::stages::LoopState;
use crate::upstream::application::queues::Queues;
use crate::upstream::links::Links;
use rustix::event::epoll;

mod answers;
mod client;
mod recorded;
mod relayed;

pub fn new_epoll() -> OwnedFd {
    epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor")
}

/// `of_links`: where the events of upstreams come.
pub fn context(hosts: Vec<Hosts>, of_links: OwnedFd) -> Context {
    let key = remembered::new_key().expect("random numbers");
    let pools = Pools::start([], |_, _, elsewhere| {
        Pool::start("test", 1, 1, elsewhere, Arc::default(), || {})
    });
    let inbox = Arc::new(Inbox::new().expect("a descriptor"));
    Context {
        shared: Arc::new(Shared {
            password_key: key.clone(),
            hosts,
            helpers: pools.expect("threads"),
            passwords: None,
            limits: None,
            log: None,
            counts: vec![Arc::new(Counts::default())],
            reloads: Arc::default(),
            spare: Arc::default(),
            messages: None,
            scripts: None,
            pools: Vec::new(),
            ports: Vec::new(),
            loops: 1,
            sandbox: std::sync::OnceLock::new(),
            heirs: std::sync::OnceLock::new(),
            phase: (Phase::Serves as u8).into(),
        }),
        options: Arc::new(Options::default()),
        queues: Queues::new(new_epoll(), &[], &inbox, 0).expect("a descriptor"),
        inbox,
        buffer: vec![0; 1 << 16],
        now: 0,
        second: 0,
        date: String::new(),
        log_time: String::new(),
        log_ms: 0,
        pace: Pace::default(),
        remembered: Remembered::new(key, 0),
        stage: LoopState::new(&Options::default().stages, 1),
        phase: Phase::Serves,
        links: Links::new(of_links, 1, None, Arc::default()),
        number: 0,
    }
}

/// A connection that waits for a helper to look for a name.
fn asking(id: u32, context: &Context) -> Connection {
    let (socket, _) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let mut connection = Connection::new(
        socket.into(),
        Transport::Plain,
        Peer::default(),
        Site::Files(0),
        id,
        context,
    );
    let text = b"GET /a HTTP/1.0\r\n\r\n";
    let Parsed::Request(request, _) = Reader::default().read(text, 100) else {
        panic!("a request");
    };
    let Target::Path(path) = &request.target else {
        panic!("a path");
    };
    let candidates = Candidates::of(&request, path, &FileOptions::default());
    connection.state = State::Asked(Box::new(Asked {
        request,
        candidates,
    }));
    connection
}

/// The first connection ended before its answer came, and the second has its place in the loop.
#[test]
fn a_late_answer_is_not_the_next_connections() {
    let mut context = context(Vec::new(), new_epoll());
    let (first, mut second) = (asking(1, &context), asking(2, &context));
    let missing = || helpers::Result::Opened(0, Lookup::Missing);
    let ticket = |connection: &Connection| Ticket {
        connection: 0,
        number: connection.number,
    };
    second.answered(ticket(&first), missing(), &mut context);
    assert!(matches!(second.state, State::Asked(_)));
    let own = ticket(&second);
    second.answered(own, missing(), &mut context);
    assert!(matches!(second.state, State::Sending(_)));
    // Each question has one answer.
    second.state = asking(2, &context).state;
    second.answered(own, missing(), &mut context);
    assert!(matches!(second.state, State::Asked(_)));
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers under debox: started, asked until they answer, loaded, and ended whatever happens.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::time::Duration;

use debox_tests::wait_for;

use crate::Story;
use crate::Tap;

/// Longer than any server here takes to start on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A port of the loopback interface that nobody listens on.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface is up");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}

impl Tap {
    /// Runs a server under this tap, calls `load` once it listens, and reads the report when it has
    /// ended. `load` ends the server with its last act. If it fails, the server is killed.
    #[track_caller]
    pub fn serve<S: AsRef<OsStr>>(self, command: &[S], port: u16, load: impl FnOnce()) -> Story {
        let measurement = self.start(command);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let listens = || TcpStream::connect_timeout(&address, LIMIT).is_ok();
        assert!(wait_for(LIMIT, listens), "nothing listens on port {port}");
        load();
        measurement.finish()
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest with a disk of its own that runs commands, one after the other: `--serve` boots it, `--enter` sends it a command.
//!
//! A client writes its command to a socket of this machine, the driver passes it on to the guest's second serial
//! port, and the guest's first process runs it (`own_disk.rs`) and sends back its output and status.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use anyhow::Result;
use nix::errno::Errno;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;

use crate::boot;
use crate::boot::Guest;
use crate::report::Message;
use crate::report::Ran;
use crate::report::Request;

/// For a client that is killed before it has said what to run.
const CLIENT_LIMIT: Duration = Duration::from_secs(5);

/// Runs the commands of clients until a signal ends this process.
pub fn serve(mut guest: Guest, socket: &Path, end: Instant) -> Result<()> {
    let served = try_serve(&mut guest, socket, end);
    guest.end();
    let _ = std::fs::remove_file(socket);
    if served.is_err() && !boot::is_stopped() {
        guest.show_console();
        return served;
    }
    Ok(())
}

fn try_serve(guest: &mut Guest, socket: &Path, end: Instant) -> Result<()> {
    match guest.next_message(end)? {
        Message::Ready => {}
        Message::Failed(reason) => bail!("{reason}"),
        other => bail!("the guest began with {other:?}"),
    }
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("cannot make the socket {}", socket.display()))?;
    eprintln!("ready");
    while !boot::is_stopped() {
        if !is_awaited(&listener)? {
            continue;
        }
        let (client, _) = listener.accept()?;
        let Some(request) = requested(&client) else {
            continue;
        };
        guest.tell(&serde_json::to_string(&request)?)?;
        match guest.next_message(end)? {
            // The client may have ended meanwhile.
            Message::Ran(ran) => drop(answer(&client, &ran)),
            Message::Failed(reason) => bail!("{reason}"),
            other => bail!("the guest answered with {other:?}"),
        }
    }
    Ok(())
}

/// Whether a client waits. A signal ends the wait.
fn is_awaited(listener: &UnixListener) -> Result<bool> {
    let mut waited = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    match nix::poll::poll(&mut waited, PollTimeout::from(1000u16)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn requested(client: &UnixStream) -> Option<Request> {
    client.set_read_timeout(Some(CLIENT_LIMIT)).ok()?;
    let mut line = String::new();
    BufReader::new(client).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn answer(mut client: &UnixStream, ran: &Ran) -> Result<()> {
    Ok(writeln!(client, "{}", serde_json::to_string(ran)?)?)
}

/// Runs a command in a guest that is served at this socket, as if it ran here.
#[expect(
    clippy::disallowed_methods,
    reason = "the command's own output, and nothing else"
)]
pub fn enter(socket: &Path, words: &[String]) -> Result<ExitCode> {
    let mut server = UnixStream::connect(socket)
        .with_context(|| format!("no guest is served at {}", socket.display()))?;
    let words = words.to_vec();
    writeln!(server, "{}", serde_json::to_string(&Request { words })?)?;
    let mut line = String::new();
    BufReader::new(server).read_line(&mut line)?;
    let ran: Ran = serde_json::from_str(&line).context("the guest ended")?;
    std::io::stderr().write_all(ran.err.as_bytes())?;
    std::io::stdout().write_all(ran.out.as_bytes())?;
    Ok(ExitCode::from(ran.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_asks_for_is_read() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        client.write_all(b"{\"words\":[\"true\"]}\n").expect("sent");
        let request = requested(&server).expect("a request");
        assert_eq!(request.words, ["true"]);
        client.write_all(b"no request\n").expect("sent");
        assert!(requested(&server).is_none());
        drop(client);
        assert!(requested(&server).is_none());
    }

    #[test]
    fn where_no_guest_is_served_it_says_so() {
        let error = enter(Path::new("/nonexistent/socket"), &[]).expect_err("no guest");
        assert!(format!("{error:#}").starts_with("no guest is served at /nonexistent/socket"));
    }
}

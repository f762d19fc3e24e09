// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much has been written to a client's socket, by whatever process, as the kernel says it.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// `struct tcp_info` of Linux as far as it is needed (4.19). The C library has a shorter one.
#[repr(C)]
struct TcpInfo {
    before: [u8; 144],
    notsent_bytes: u32,
    between: [u8; 52],
    bytes_sent: u64,
    bytes_retrans: u64,
}

/// Bytes that the socket has taken since the connection began. `None`: it is no TCP, or the kernel does not say it.
pub(super) fn written(socket: &OwnedFd) -> Option<u64> {
    let size = size_of::<TcpInfo>();
    let mut info = MaybeUninit::<TcpInfo>::zeroed();
    let mut length = libc::socklen_t::try_from(size).ok()?;
    // SAFETY: the kernel writes at most `length` bytes to where there is room for them.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if done != 0 || (length as usize) < size {
        return None;
    }
    // SAFETY: any bytes are valid numbers, and all have been set.
    let info = unsafe { info.assume_init() };
    let new = info.bytes_sent.saturating_sub(info.bytes_retrans);
    Some(new + u64::from(info.notsent_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_was_written_is_counted_whether_it_was_received_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address"));
        let client = client.as_mut().expect("it listens");
        let (mut server, _) = listener.accept().expect("a client");
        let of = |server: &TcpStream| written(&server.try_clone().expect("a descriptor").into());
        assert_eq!(of(&server), Some(0));
        server.write_all(b"hello").expect("room");
        assert_eq!(of(&server), Some(5));
        client.read_exact(&mut [0; 5]).expect("bytes");
        server.set_nonblocking(true).expect("a socket");
        let mut total = 5;
        while let Ok(length) = server.write(&[0; 100_000]) {
            total += length as u64;
        }
        assert_eq!(of(&server), Some(total));
    }

    #[test]
    fn other_sockets_say_nothing() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(written(&socket.into()), None);
    }
}

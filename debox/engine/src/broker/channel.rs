//! Packets over a Unix socket, with descriptors and the sender's credentials.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    self, sockopt, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr,
};
use nix::sys::time::TimeVal;

/// Process and real user.
type Sender = Option<(i32, u32)>;

/// A received packet.
pub struct Packet {
    pub bytes: Vec<u8>,
    pub descriptor: Option<OwnedFd>,
    /// The sender's process and real user, if the socket passes credentials.
    pub sender: Sender,
}

pub fn socket() -> io::Result<OwnedFd> {
    Ok(socket::socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?)
}

/// Connects, and makes every wait on the socket end with `WouldBlock` after `patience`.
pub fn connect(path: &std::path::Path, patience: Duration) -> io::Result<OwnedFd> {
    let socket = socket()?;
    be_patient(&socket, patience)?;
    socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// Makes every wait on the socket end after this time.
pub fn be_patient(socket: &OwnedFd, patience: Duration) -> io::Result<()> {
    // 0 would mean no limit.
    let micros = patience.as_micros().clamp(1, i64::MAX as u128) as i64;
    let limit = TimeVal::new(micros / 1_000_000, micros % 1_000_000);
    socket::setsockopt(socket, sockopt::SendTimeout, &limit)?;
    socket::setsockopt(socket, sockopt::ReceiveTimeout, &limit)?;
    Ok(())
}

pub fn send(socket: BorrowedFd, packet: &[u8], fds: &[RawFd], flags: MsgFlags) -> io::Result<()> {
    let control = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &[] } else { &control[..] };
    let data = [IoSlice::new(packet)];
    let flags = flags | MsgFlags::MSG_NOSIGNAL;
    loop {
        match socket::sendmsg::<()>(socket.as_raw_fd(), &data, control, flags, None) {
            Ok(_) => return Ok(()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Room for [`DESCRIPTORS_MAX`] descriptors and the credentials: the kernel drops what does not fit.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// A packet with more descriptors is not accepted.
const DESCRIPTORS_MAX: usize = 3;

/// The descriptors of a packet, in order. The additional place is filled if there were more than
/// [`DESCRIPTORS_MAX`].
pub type Descriptors = [Option<OwnedFd>; DESCRIPTORS_MAX + 1];

/// Receives one packet of at most `limit` bytes. A closed connection is `UnexpectedEof`; a longer
/// packet, or one with more than one descriptor, is `InvalidData`, and its descriptors are closed.
pub fn receive(socket: BorrowedFd, limit: usize, flags: MsgFlags) -> io::Result<Packet> {
    let (bytes, mut fds, sender) = receive_all(socket, limit, flags)?;
    if fds.len() > 1 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Packet {
        bytes,
        descriptor: fds.pop(),
        sender,
    })
}

/// As [`receive`], with up to three descriptors.
pub fn receive_all(
    socket: BorrowedFd,
    limit: usize,
    flags: MsgFlags,
) -> io::Result<(Vec<u8>, Vec<OwnedFd>, Sender)> {
    let mut bytes = vec![0u8; limit];
    let (length, fds, sender) = receive_in(socket, &mut bytes, flags)?;
    bytes.truncate(length);
    Ok((bytes, fds.into_iter().flatten().collect(), sender))
}

/// As [`receive_all`], into a given buffer, without allocating. Returns the packet's length.
pub fn receive_in(
    socket: BorrowedFd,
    bytes: &mut [u8],
    flags: MsgFlags,
) -> io::Result<(usize, Descriptors, Sender)> {
    let mut control = Control([0; 64]);
    let mut data = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all zeros are a valid header of an empty message.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut data;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    let flags = flags.bits() | libc::MSG_CMSG_CLOEXEC;
    // nix does not return the descriptors of a truncated message, but they have to be closed.
    let length = loop {
        // SAFETY: the header points to buffers of the lengths that it gives.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        if got >= 0 {
            break got as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    // SAFETY: the kernel has filled in the header and the control messages that it points to.
    let (fds, sender) = unsafe { take_control(&header) };
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // If this process has no free descriptors, the kernel drops them and marks the message as
    // truncated.
    if header.msg_flags & libc::MSG_CTRUNC != 0 && !has_descriptor_left() {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    let is_cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    if is_cut || fds[DESCRIPTORS_MAX].is_some() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((length, fds, sender))
}

/// Whether this process has a free descriptor.
fn has_descriptor_left() -> bool {
    // SAFETY: takes two integers; the new descriptor is closed at once.
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC);
        fd >= 0 && libc::close(fd) == 0
    }
}

/// The descriptors and the sender that came with a message.
///
/// # Safety
///
/// The kernel has filled in the header, and the descriptors have not been taken yet.
unsafe fn take_control(header: &libc::msghdr) -> (Descriptors, Sender) {
    let mut fds = Descriptors::default();
    let mut free = fds.iter_mut();
    let mut sender = None;
    // SAFETY: the kernel filled in the header.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: the macros stay inside the kernel's data, and end with null.
    while let Some(part) = unsafe { message.as_ref() } {
        // SAFETY: as above.
        let (content, empty) = unsafe { (libc::CMSG_DATA(part), libc::CMSG_LEN(0)) };
        let length = part.cmsg_len.saturating_sub(empty as usize);
        match (part.cmsg_level, part.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for at in 0..length / std::mem::size_of::<RawFd>() {
                    // SAFETY: the message holds that many descriptors, made for us by the kernel.
                    let fd = unsafe { content.cast::<RawFd>().add(at).read_unaligned() };
                    // SAFETY: as above.
                    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
                    if let Some(free) = free.next() {
                        *free = Some(fd);
                    }
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS)
                if length >= std::mem::size_of::<libc::ucred>() =>
            {
                // SAFETY: the message holds the credentials.
                let who = unsafe { content.cast::<libc::ucred>().read_unaligned() };
                sender = Some((who.pid, who.uid));
            }
            _ => {}
        }
        // SAFETY: as above.
        message = unsafe { libc::CMSG_NXTHDR(header, part) };
    }
    (fds, sender)
}

/// Whether the other side has gone: no process holds its end any more.
pub fn has_hung_up(socket: &OwnedFd) -> bool {
    // A closed connection is reported whatever events are requested.
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    matches!(poll(&mut polled, PollTimeout::ZERO), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socket::socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap()
    }

    fn open_descriptors() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn a_silent_side_is_not_waited_for_for_ever() {
        let (a, _b) = pair();
        be_patient(&a, Duration::from_millis(50)).unwrap();
        let silence = receive(a.as_fd(), 16, MsgFlags::empty()).err().unwrap();
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        let full =
            (0..10_000).find_map(|_| send(a.as_fd(), &[0; 64], &[], MsgFlags::empty()).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn packets_keep_their_bounds() {
        let (a, b) = pair();
        send(a.as_fd(), b"one", &[], MsgFlags::empty()).unwrap();
        send(a.as_fd(), b"two", &[], MsgFlags::empty()).unwrap();
        let packet = receive(b.as_fd(), 16, MsgFlags::empty()).unwrap();
        assert_eq!(packet.bytes, b"one");
        drop(a);
        assert!(receive(b.as_fd(), 16, MsgFlags::empty()).is_ok());
        assert!(has_hung_up(&b));
        let end = receive(b.as_fd(), 16, MsgFlags::empty()).err().unwrap();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn long_packets_and_many_descriptors_are_refused_and_leave_nothing() {
        let (a, b) = pair();
        send(a.as_fd(), &[0; 17], &[], MsgFlags::empty()).unwrap();
        let error = receive(b.as_fd(), 16, MsgFlags::empty()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);

        // Other tests open and close files at the same time: a leak from all of these would show.
        let before = open_descriptors();
        for _ in 0..50 {
            let fds = [a.as_raw_fd(); 8];
            let control = [ControlMessage::ScmRights(&fds)];
            let data = [IoSlice::new(b"x")];
            socket::sendmsg::<()>(a.as_raw_fd(), &data, &control, MsgFlags::empty(), None).unwrap();
            assert!(receive(b.as_fd(), 16, MsgFlags::empty()).is_err());
        }
        assert!(open_descriptors() < before + 50);
    }
}

//! What a process under the user tap gets from whoever has its session's name: as the preload shim
//! reads it (in C), and the library.
#![no_main]

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{self, AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType};

extern "C" {
    /// Whether the shim takes the next packet for its session's. Nothing stays open.
    fn debox_fuzz_receive(socket: i32, secret: u64) -> i32;
    /// Whether the shim takes a text for the address of a session.
    fn debox_fuzz_address(text: *const u8, length: usize) -> i32;
    /// How many filters the shim reads from the text of `/proc/self/status`.
    fn debox_fuzz_filters(text: *const u8, length: usize) -> i64;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&how, packet)) = bytes.split_first() else {
        return;
    };
    let descriptors = usize::from(how % 8);
    debox::outside::welcome(packet, descriptors);

    let (to, from) = pair();
    let size = u64::from(how >> 3) << 20;
    let memory = memory_file(size);
    let fds = vec![memory.as_raw_fd(); descriptors];
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights };
    let data = [std::io::IoSlice::new(packet)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    if socket::sendmsg::<()>(to.as_raw_fd(), &data, rights, flags, None).is_err() {
        return;
    }
    // SAFETY: the socket is open, and there is a packet to be had, or the end of all.
    let is_taken = unsafe { debox_fuzz_receive(from.as_raw_fd(), SECRET) } == 1;
    assert_eq!(is_taken, descriptors == 3 && is_good(packet, size));

    // SAFETY: the text is as long as is said.
    let filters = unsafe { debox_fuzz_filters(packet.as_ptr(), packet.len()) };
    assert!(filters >= 0);
    // SAFETY: as above.
    let is_address = unsafe { debox_fuzz_address(packet.as_ptr(), packet.len()) } == 1;
    // What the library reads, the shim does; it takes more filters than there are numbers for.
    if packet.is_ascii() && !packet.contains(&0) && !packet.iter().any(u8::is_ascii_uppercase) {
        let text = std::str::from_utf8(packet).unwrap_or_default();
        assert!(is_address || !debox::outside::tap_address(text));
    }
});

/// Of the session that is looked for.
const SECRET: u64 = 0x0102_0304_0506_0708;

/// This version, slots whose rows are in a file of that size, and the secret.
fn is_good(packet: &[u8], size: u64) -> bool {
    const TABLE: u64 = (512 * (12 * 8 + 4 * 296) as u64).next_multiple_of(4096);
    let Some((&[1, 0, 0, 0], slots)) = packet.split_first_chunk::<4>() else {
        return false;
    };
    let Some((slots, secret)) = slots.split_first_chunk::<4>() else {
        return false;
    };
    let slots = u32::from_ne_bytes(*slots);
    secret == SECRET.to_ne_bytes() && slots > 0 && 4096 + u64::from(slots) * TABLE <= size
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (unix, packets) = (AddressFamily::Unix, SockType::SeqPacket);
    socket::socketpair(unix, packets, None, SockFlag::SOCK_CLOEXEC).expect("two sockets")
}

fn memory_file(size: u64) -> OwnedFd {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let file = nix::sys::memfd::memfd_create(c"debox-any-rows", flags).expect("a memory file");
    nix::unistd::ftruncate(&file, size as i64).expect("memory");
    file
}

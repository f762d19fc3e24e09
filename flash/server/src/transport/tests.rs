// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of `rustls` on the other end of a socket pair, and what is no client.

use super::*;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::CertificateDer;

use crate::counts::Counts;
use crate::tls::tests::make_pair;
use crate::tls::{Settings, Tls};

struct Sides {
    server: Transport,
    ours: OwnedFd,
    client: ClientConnection,
    theirs: UnixStream,
    pace: Pace,
}

thread_local! {
    /// A certificate takes time to make.
    static CONFIGS: (Arc<ServerConfig>, Arc<ClientConfig>) = {
        let place = tempfile::tempdir().expect("a directory");
        let pair = make_pair(place.path(), "a", &["localhost"]);
        let mut roots = RootCertStore::empty();
        let cert = CertificateDer::from_pem_file(&pair.cert).expect("a certificate");
        roots.add(cert).expect("a certificate");
        let tls = Tls::load(&Settings { pairs: vec![pair] }).expect("they are right");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        (tls.config, Arc::new(client))
    };
}

fn sides() -> Sides {
    let (theirs, ours) = UnixStream::pair().expect("sockets");
    for socket in [&theirs, &ours] {
        socket.set_nonblocking(true).expect("a socket");
    }
    CONFIGS.with(|(server, client)| Sides {
        server: Transport::new(Some(server)).expect("a configuration"),
        ours: ours.into(),
        client: ClientConnection::new(Arc::clone(client), "localhost".try_into().expect("a name"))
            .expect("a configuration"),
        theirs,
        pace: Pace::default(),
    })
}

impl Sides {
    /// What the server receives from what is there.
    fn receive(&mut self) -> Result<Vec<u8>, Received> {
        let mut all = Vec::new();
        let mut buffer = [0; 1000];
        self.pace.spent_ns = 0;
        loop {
            match self.server.receive(&self.ours, &mut buffer, &mut self.pace) {
                Received::Bytes(length) => all.extend_from_slice(&buffer[..length]),
                Received::Nothing => return Ok(all),
                Received::Paced => self.pace.spent_ns = 0,
                other => return Err(other),
            }
        }
    }

    /// All that the client has to send, in pieces of these lengths.
    fn exchange(&mut self, lengths: &mut impl Iterator<Item = usize>) -> Vec<u8> {
        let mut received = Vec::new();
        loop {
            let mut out = Vec::new();
            while self.client.wants_write() {
                self.client.write_tls(&mut out).expect("memory");
            }
            let was_empty = out.is_empty();
            while !out.is_empty() {
                let length = lengths.next().unwrap_or(1).clamp(1, out.len());
                self.theirs.write_all(&out[..length]).expect("room");
                out.drain(..length);
                received.extend(self.receive().expect("it is right"));
            }
            while self
                .client
                .read_tls(&mut self.theirs)
                .is_ok_and(|length| length > 0)
            {
                self.client.process_new_packets().expect("it is right");
            }
            if was_empty && !self.client.wants_write() {
                return received;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However the bytes of the client are split, the server receives the same, and the client what is sent.
    #[test]
    fn packets_may_begin_anywhere(lengths in prop::collection::vec(1..700usize, 1..40), size in 0..100_000usize) {
        let mut sides = sides();
        let mut lengths = lengths.into_iter().cycle();
        let text: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
        sides.client.writer().write_all(&text).expect("memory");
        prop_assert_eq!(sides.exchange(&mut lengths), text);
        let answer: Vec<u8> = (0..size).map(|n| n as u8).collect();
        let (mut sent, mut got) = (0, Vec::new());
        while got.len() < size {
            if sent < size {
                match sides.server.send(&sides.ours, &answer[sent..], b"", false) {
                    Ok(length) => {
                        prop_assert!(length <= ENCRYPTED);
                        sent += length;
                    }
                    Err(error) => prop_assert_eq!(error, Errno::AGAIN),
                }
            } else {
                let _ = sides.server.flush(&sides.ours);
            }
            while sides.client.read_tls(&mut sides.theirs).is_ok_and(|length| length > 0) {
                sides.client.process_new_packets().expect("it is right");
                let mut piece = [0; 20_000];
                while let Ok(length @ 1..) = sides.client.reader().read(&mut piece) {
                    got.extend_from_slice(&piece[..length]);
                }
            }
        }
        prop_assert_eq!(got, answer);
        prop_assert_eq!((sides.pace.done, sides.pace.failed), (1, 0));
    }

    /// A changed byte ends the connection or does not matter. It never changes what is received.
    #[test]
    fn changed_bytes_never_change_a_request(at in 0..600usize, change in 1..=255u8) {
        let mut sides = sides();
        sides.client.writer().write_all(b"hello").expect("memory");
        let (mut place, mut received) = (0, Vec::new());
        for _ in 0..10 {
            let mut out = Vec::new();
            while sides.client.wants_write() {
                sides.client.write_tls(&mut out).expect("memory");
            }
            if (place..place + out.len()).contains(&at) {
                out[at - place] ^= change;
            }
            place += out.len();
            let _ = sides.theirs.write_all(&out);
            match sides.receive() {
                Ok(bytes) => received.extend(bytes),
                Err(_) => break,
            }
            let _ = sides.client.read_tls(&mut sides.theirs);
            if sides.client.process_new_packets().is_err() {
                break;
            }
        }
        // A few bytes are not protected, as the version of the first record.
        prop_assert!(received.is_empty() || received == b"hello");
    }

    #[test]
    fn nonsense_ends_the_connection(bytes in prop::collection::vec(any::<u8>(), 1..2000)) {
        let mut sides = sides();
        sides.theirs.write_all(&bytes).expect("room");
        if let Ok(received) = sides.receive() {
            prop_assert!(received.is_empty());
        }
    }
}

#[test]
fn a_plain_request_is_recognized() {
    let mut sides = sides();
    sides.theirs.write_all(b"GET / HTTP/1.1\r\n").expect("room");
    assert_eq!(sides.receive(), Err(Received::NotTls));
    assert!(sides.server.takes_files());
}

#[test]
fn the_end_is_said_and_heard() {
    let mut sides = sides();
    sides.exchange(&mut std::iter::repeat(1000));
    sides.client.send_close_notify();
    let mut out = Vec::new();
    sides.client.write_tls(&mut out).expect("memory");
    sides.theirs.write_all(&out).expect("room");
    assert_eq!(sides.receive(), Err(Received::End));
    // Its side of the connection is still open.
    assert_eq!(sides.server.send(&sides.ours, b"bye", b"", false), Ok(3));
    sides.server.end(&sides.ours);
    while sides
        .client
        .read_tls(&mut sides.theirs)
        .is_ok_and(|length| length > 0)
    {}
    let state = sides.client.process_new_packets().expect("it is right");
    assert!(state.peer_has_closed());
    assert_eq!(state.plaintext_bytes_to_read(), 3);
}

#[test]
fn handshakes_wait_for_the_next_turn() {
    let mut sides = sides();
    let mut out = Vec::new();
    sides.client.write_tls(&mut out).expect("memory");
    sides.theirs.write_all(&out).expect("room");
    sides.pace.use_up();
    let mut buffer = [0; 100];
    let received = sides
        .server
        .receive(&sides.ours, &mut buffer, &mut sides.pace);
    assert_eq!(received, Received::Paced);
    let counts = Counts::default();
    let received = loop {
        sides.pace.turn(&counts);
        let received = sides
            .server
            .receive(&sides.ours, &mut buffer, &mut sides.pace);
        // On a slow machine one part of the handshake takes all the time of a turn.
        if received != Received::Paced {
            break received;
        }
    };
    assert_eq!(received, Received::Nothing);
    assert!(sides.server.is_handshaking());
}

#[test]
fn a_client_that_does_not_read_has_little_in_memory() {
    let mut sides = sides();
    sides.exchange(&mut std::iter::repeat(1000));
    let mut answers = 0;
    let text = vec![b'x'; 4 * ENCRYPTED];
    let refused = loop {
        match sides.server.send(&sides.ours, &text, b"", false) {
            Ok(length) => answers += length,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Errno::AGAIN);
    // What the socket holds is the kernel's.
    let (mut in_socket, mut piece) = (0, [0; 5000]);
    while let Ok(length @ 1..) = sides.theirs.read(&mut piece) {
        in_socket += length;
    }
    assert!(answers - in_socket <= ENCRYPTED, "{answers} {in_socket}");
}

/// Records of TLS 1.3 that `rustls` would not send.
struct Sealer {
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    number: u64,
}

impl Sealer {
    fn of(client: ClientConnection) -> Sealer {
        let secrets = client.dangerous_extract_secrets().expect("secrets");
        let (number, secrets) = secrets.tx;
        let (kind, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&aead::CHACHA20_POLY1305, key, iv)
            }
            _ => panic!("another cipher"),
        };
        Sealer {
            key: LessSafeKey::new(UnboundKey::new(kind, key.as_ref()).expect("a key")),
            iv: iv.as_ref().try_into().expect("a nonce"),
            number,
        }
    }

    fn seal(&mut self, content: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        for (byte, own) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= own;
        }
        self.number += 1;
        // Behind the content stands its type: a request's bytes.
        let mut sealed = [content, &[23]].concat();
        let [high, low] = (sealed.len() as u16 + 16).to_be_bytes();
        let head = [23, 3, 3, high, low];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(nonce, Aad::from(head), &mut sealed)
            .expect("it is short");
        [&head[..], &sealed].concat()
    }
}

#[test]
fn a_client_with_short_records_is_not_the_only_one() {
    let mut sides = sides();
    sides.exchange(&mut std::iter::repeat(1000));
    let mut sealer = Sealer::of(sides.client);
    // As many empty ones between as `rustls` allows.
    let records: Vec<u8> = (0..10_000)
        .flat_map(|number| match number % 32 {
            0 => sealer.seal(b"x"),
            _ => sealer.seal(b""),
        })
        .collect();
    let (mut sent, mut received, mut turns) = (0, 0, 0);
    let mut buffer = [0; 1000];
    while received < 10_000_usize.div_ceil(32) {
        while let Ok(length @ 1..) = sides.theirs.write(&records[sent..]) {
            sent += length;
        }
        match sides
            .server
            .receive(&sides.ours, &mut buffer, &mut sides.pace)
        {
            Received::Bytes(length) => received += length,
            Received::Paced => turns += 1,
            Received::Nothing => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(turns > 0);
}

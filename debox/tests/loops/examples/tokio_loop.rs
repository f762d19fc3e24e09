// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server with tokio that answers its own requests, and does one more thing:
//! tokio_loop WHAT SECONDS DIRECTORY.

use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

const HELD: Duration = Duration::from_millis(4);
const PAUSE: Duration = Duration::from_millis(10);

type Thing = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

fn save(path: &PathBuf) {
    let mut file = std::fs::File::create(path).expect("a file");
    file.write_all(&[0; 4096]).expect("written");
    file.sync_all().expect("synced");
}

/// A mutex that another thread has most of the time.
fn held_lock() -> Arc<Mutex<u64>> {
    let lock = Arc::new(Mutex::new(0));
    let held = Arc::clone(&lock);
    std::thread::spawn(move || loop {
        let guard = held.lock().expect("a lock");
        std::thread::sleep(HELD);
        drop(guard);
        std::thread::sleep(HELD / 4);
    });
    lock
}

/// A peer that answers late.
fn slow_peer() -> Arc<Mutex<UnixStream>> {
    let (own, mut peer) = UnixStream::pair().expect("sockets");
    std::thread::spawn(move || {
        let mut word = [0; 4];
        while peer.read_exact(&mut word).is_ok() {
            std::thread::sleep(HELD);
            peer.write_all(&word).expect("written");
        }
    });
    Arc::new(Mutex::new(own))
}

/// In the task itself.
fn blocking(does: impl Fn() + Send + Sync + 'static) -> Thing {
    let does = Arc::new(does);
    Arc::new(move || {
        let does = Arc::clone(&does);
        Box::pin(async move { does() })
    })
}

fn thing(what: &str, directory: PathBuf) -> Thing {
    let path = directory.join("saved");
    match what {
        "talks" | "talks-in-one-thread" => blocking(|| ()),
        "saves-in-the-pool" => Arc::new(move || {
            let path = path.clone();
            Box::pin(async move {
                let saved = tokio::task::spawn_blocking(move || save(&path));
                saved.await.expect("saved");
            })
        }),
        "saves-in-place" => blocking(move || tokio::task::block_in_place(|| save(&path))),
        "writes-files" => Arc::new(move || {
            let path = path.clone();
            Box::pin(async move { tokio::fs::write(&path, [0; 4096]).await.expect("written") })
        }),
        "shares-a-lock" => {
            let lock = Arc::new(tokio::sync::Mutex::new(0));
            Arc::new(move || {
                let lock = Arc::clone(&lock);
                Box::pin(async move {
                    let mut guard = lock.lock().await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    *guard += 1;
                })
            })
        }
        "saves" => blocking(move || save(&path)),
        // The pool may block, but what runs in it here is a loop again.
        "saves-in-a-loop-of-the-pool" => Arc::new(move || {
            let path = path.clone();
            Box::pin(async move {
                let runs = move || {
                    let inner = Builder::new_current_thread().enable_all().build();
                    inner.expect("a runtime").block_on(async {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        save(&path);
                    });
                };
                tokio::task::spawn_blocking(runs).await.expect("saved");
            })
        }),
        "sleeps" => blocking(|| std::thread::sleep(HELD)),
        "takes-a-lock" => {
            let lock = held_lock();
            blocking(move || *lock.lock().expect("a lock") += 1)
        }
        "waits-for-a-thread" => blocking(|| {
            let (sender, receiver) = channel();
            std::thread::spawn(move || {
                std::thread::sleep(HELD);
                sender.send(()).expect("sent");
            });
            receiver.recv().expect("received");
        }),
        "asks-a-slow-peer" => {
            let peer = slow_peer();
            blocking(move || {
                let mut peer = peer.lock().expect("a peer");
                peer.write_all(b"what").expect("written");
                peer.read_exact(&mut [0; 4]).expect("read");
            })
        }
        "waits-for-processes" => blocking(|| {
            let mut command = std::process::Command::new("sleep");
            command.arg("0.003").status().expect("a process");
        }),
        other => panic!("{other}?"),
    }
}

async fn answers(mut client: TcpStream, thing: Thing) -> std::io::Result<()> {
    let mut word = [0; 4];
    while client.read_exact(&mut word).await.is_ok() {
        thing().await;
        client.write_all(&word).await?;
    }
    Ok(())
}

async fn asks(address: std::net::SocketAddr, until: Instant) -> std::io::Result<()> {
    let mut server = TcpStream::connect(address).await?;
    while Instant::now() < until {
        server.write_all(b"what").await?;
        server.read_exact(&mut [0; 4]).await?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn talks(thing: Thing, until: Instant) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a server");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answers(client, Arc::clone(&thing)));
        }
    });
    let clients: Vec<_> = (0..4).map(|_| tokio::spawn(asks(address, until))).collect();
    for client in clients {
        client.await.expect("a task").expect("answers");
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, what, seconds, directory] = &words[..] else {
        panic!("tokio_loop WHAT SECONDS DIRECTORY");
    };
    let seconds: f64 = seconds.parse().expect("seconds");
    let mut builder = match what.as_str() {
        "talks-in-one-thread" => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build().expect("a runtime");
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    runtime.block_on(talks(thing(what, directory.into()), until));
}

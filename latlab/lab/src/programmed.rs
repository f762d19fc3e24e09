//! A server whose service times and faults are programmed, for testing a laboratory: the right results
//! are known.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::content::mix;
use crate::dynamic::{page, Page, Visitor};
use crate::fileset::{File, FileSet};
use crate::sys;
use crate::units::parse_duration;

/// Service times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Service {
    Fixed(Duration),
    /// Exponentially distributed, with this mean.
    Exponential(Duration),
    /// Heavy-tailed: the minimum, and the exponent of the tail.
    Pareto(Duration, f64),
    /// Every n-th request takes this long, the others no time.
    Stall(Duration, u64),
    /// The smaller, the longer: an empty body takes this long, one of 900 KiB no time.
    Inverted(Duration),
    /// This time for each KiB.
    BySize(Duration),
}

impl Service {
    /// `fixed:5ms`, `exp:5ms`, `pareto:1ms,1.5`, `stall:1ms/1000`, `inverted:10ms`, `by-size:1us`
    pub fn parse(text: &str) -> Result<Service, String> {
        let expected = "expected fixed:TIME, exp:TIME, pareto:TIME,EXPONENT, stall:TIME/N, \
            inverted:TIME or by-size:TIME";
        let (name, value) = text.split_once(':').ok_or(expected)?;
        Ok(match name {
            "fixed" => Service::Fixed(parse_duration(value)?),
            "exp" => Service::Exponential(parse_duration(value)?),
            "inverted" => Service::Inverted(parse_duration(value)?),
            "by-size" => Service::BySize(parse_duration(value)?),
            "pareto" => {
                let (least, exponent) = value.split_once(',').ok_or(expected)?;
                match exponent.parse() {
                    Ok(exponent) if exponent > 0.0 => {
                        Service::Pareto(parse_duration(least)?, exponent)
                    }
                    _ => return Err(expected.to_string()),
                }
            }
            "stall" => {
                let (time, every) = value.split_once('/').ok_or(expected)?;
                match every.parse() {
                    Ok(every) if every > 0 => Service::Stall(parse_duration(time)?, every),
                    _ => return Err(expected.to_string()),
                }
            }
            _ => return Err(expected.to_string()),
        })
    }

    /// The service time of the n-th request, counted from 1.
    fn time_ns(self, number: u64, size: u64, random: &mut Xoshiro256PlusPlus) -> i64 {
        let ns = |time: Duration| time.as_nanos() as f64;
        let uniform = 1.0 - random.random::<f64>();
        let time = match self {
            Service::Fixed(time) => ns(time),
            Service::Exponential(mean) => -ns(mean) * uniform.ln(),
            Service::Pareto(least, exponent) => ns(least) * uniform.powf(-1.0 / exponent),
            Service::Stall(time, every) if number.is_multiple_of(every) => ns(time),
            Service::Stall(..) => 0.0,
            Service::Inverted(longest) => ns(longest) * (1.0 - size as f64 / 921_600.0).max(0.0),
            Service::BySize(each) => ns(each) * size as f64 / 1024.0,
        };
        time.min(60e9) as i64
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection is reset instead of answered.
    Reset,
    /// The connection is closed.
    Close,
    /// No answer is sent.
    Hang,
    /// Half of the body is sent, then the connection is closed.
    Short,
    /// Head and body have one byte less than they should.
    Less,
    /// Head and body have more bytes than they should.
    More,
    /// The body is longer than the head says.
    Surplus,
    Status,
    Content,
    Garbage,
    /// The server exits.
    Die,
}

const FAULTS: [(&str, Fault); 11] = [
    ("reset", Fault::Reset),
    ("close", Fault::Close),
    ("hang", Fault::Hang),
    ("short", Fault::Short),
    ("less", Fault::Less),
    ("more", Fault::More),
    ("surplus", Fault::Surplus),
    ("status", Fault::Status),
    ("content", Fault::Content),
    ("garbage", Fault::Garbage),
    ("die", Fault::Die),
];

/// `reset/100`: the hundredth request, the two hundredth, and so on.
pub fn parse_fault(text: &str) -> Result<(Fault, u64), String> {
    let parsed = text.split_once('/').and_then(|(name, every)| {
        let (_, fault) = FAULTS.iter().find(|(known, _)| *known == name)?;
        let every = every.parse().ok().filter(|every| *every > 0)?;
        Some((*fault, every))
    });
    parsed.ok_or_else(|| {
        let names: Vec<_> = FAULTS.iter().map(|(name, _)| *name).collect();
        format!("expected KIND/N, where KIND is one of {}", names.join(", "))
    })
}

/// The server's behaviour.
#[derive(Debug, Clone)]
pub struct Program {
    pub service: Service,
    pub faults: Vec<(Fault, u64)>,
    /// Serve one request at a time.
    pub serial: bool,
    pub set: FileSet,
}

struct Shared {
    program: Program,
    requests: AtomicU64,
    turn: Mutex<()>,
}

/// Serves forever, with a thread for each connection.
pub fn serve(listener: &TcpListener, program: Program) -> Result<()> {
    let shared = Arc::new(Shared {
        program,
        requests: AtomicU64::new(0),
        turn: Mutex::new(()),
    });
    for stream in listener.incoming() {
        let stream = stream.context("cannot accept a connection")?;
        let shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .stack_size(256 << 10)
            // A client that closes its connection is no error here.
            .spawn(move || drop(shared.serve(stream)))
            .context("cannot start a thread")?;
    }
    Ok(())
}

struct Asked {
    path: String,
    cookie: String,
    body: String,
    close: bool,
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        sys::wake_exactly();
        stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        while let Some(asked) = read_request(&mut stream, &mut buffer)? {
            let number = 1 + self.requests.fetch_add(1, Ordering::Relaxed);
            let (body, ad) = self.body(&asked);
            let mut random =
                Xoshiro256PlusPlus::seed_from_u64(mix(self.program.set.seed ^ number << 1));
            let size = body.as_ref().map_or(0, Vec::len) as u64;
            let time_ns = self.program.service.time_ns(number, size, &mut random);
            let arrived = sys::now_ns();
            if self.program.serial {
                let _turn = self.turn.lock();
                sys::sleep_until(sys::now_ns() + time_ns);
            } else if time_ns > 0 {
                sys::sleep_until(arrived + time_ns);
            }
            let faults = &self.program.faults;
            let fault = faults
                .iter()
                .find(|(_, every)| number.is_multiple_of(*every));
            let fault = fault.map(|(fault, _)| *fault);
            let go_on = answer(&mut stream, body, ad, asked.close, fault)?;
            if !go_on || asked.close {
                break;
            }
        }
        Ok(())
    }

    /// The body of the reply; `None` if the path does not exist.
    fn body(&self, asked: &Asked) -> (Option<Vec<u8>>, Option<u16>) {
        let path = asked.path.as_str();
        if path == "/" {
            return (Some(b"latlab\n".to_vec()), None);
        }
        if let Some(size) = path.strip_prefix("/bytes/") {
            let size = size.parse().ok().filter(|size| *size <= 64 << 20);
            return (size.map(|size| vec![b'x'; size]), None);
        }
        let Some(file) = File::from_path(path) else {
            return (None, None);
        };
        let mut bytes = vec![0; file.size() as usize];
        self.program.set.key(file).fill(0, &mut bytes);
        let Some(which) = path.rsplit('/').nth(2).and_then(Page::from_name) else {
            return (Some(bytes), None);
        };
        let visitor = match which {
            Page::Post => Visitor::parse(&asked.body),
            _ => Visitor::parse(&asked.cookie),
        };
        let (before, after) = page(which, file, visitor, self.program.set);
        let ad = matches!(which, Page::Ad | Page::Post).then(|| visitor.next_ad(self.program.set));
        let whole = [before.as_bytes(), &bytes, after.as_bytes()].concat();
        (Some(whole), ad)
    }
}

/// Returns whether the connection stays open.
fn answer(
    stream: &mut TcpStream,
    body: Option<Vec<u8>>,
    ad: Option<u16>,
    close: bool,
    fault: Option<Fault>,
) -> io::Result<bool> {
    let mut status = if body.is_some() {
        "200 OK"
    } else {
        "404 Not Found"
    };
    let mut body = body.unwrap_or_default();
    let mut length = body.len();
    match fault {
        None => {}
        Some(Fault::Close) => return Ok(false),
        Some(Fault::Reset) => {
            reset_on_close(stream);
            return Ok(false);
        }
        Some(Fault::Hang) => {
            // Until the client gives up.
            let mut rest = [0; 64];
            while stream.read(&mut rest)? > 0 {}
            return Ok(false);
        }
        Some(Fault::Die) => std::process::exit(3),
        Some(Fault::Garbage) => {
            stream.write_all(b"220 mail.example ESMTP\r\n")?;
            return Ok(false);
        }
        Some(Fault::Short) => body.truncate(length / 2),
        Some(Fault::Less) => {
            length = length.saturating_sub(1);
            body.truncate(length);
        }
        Some(Fault::More) => {
            body.extend_from_slice(b"more");
            length = body.len();
        }
        Some(Fault::Surplus) => body.extend_from_slice(b"more"),
        Some(Fault::Status) => status = "503 Service Unavailable",
        Some(Fault::Content) => {
            if let Some(last) = body.last_mut() {
                *last ^= 0x80;
            }
        }
    }
    let mut out = Vec::with_capacity(body.len() + 200);
    write!(out, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n")?;
    if let Some(ad) = ad {
        write!(out, "Set-Cookie: last_ad={ad}; Path=/\r\n")?;
    }
    if close {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&body);
    stream.write_all(&out)?;
    Ok(fault != Some(Fault::Short))
}

fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the option is such a structure.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
}

/// The next request; `None` at the end of the connection. Bytes after it stay in the buffer.
fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Asked>> {
    let mut piece = [0; 4096];
    loop {
        if let Some((asked, length)) = parse(buffer)? {
            buffer.drain(..length);
            return Ok(Some(asked));
        }
        let length = stream.read(&mut piece)?;
        if length == 0 || buffer.len() > 64 << 10 {
            return Ok(None);
        }
        buffer.extend_from_slice(&piece[..length]);
    }
}

fn parse(bytes: &[u8]) -> io::Result<Option<(Asked, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    };
    let header = |name: &str| {
        let mut found = request.headers.iter();
        let found = found.find(|header| header.name.eq_ignore_ascii_case(name));
        found.map_or(String::new(), |header| {
            String::from_utf8_lossy(header.value).into_owned()
        })
    };
    let length: usize = header("Content-Length").parse().unwrap_or(0);
    let Some(body) = bytes.get(head..head.saturating_add(length)) else {
        return Ok(None);
    };
    let asked = Asked {
        path: request.path.unwrap_or("/").to_string(),
        cookie: header("Cookie"),
        body: String::from_utf8_lossy(body).into_owned(),
        close: header("Connection").eq_ignore_ascii_case("close"),
    };
    Ok(Some((asked, head + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read() {
        let ms = Duration::from_millis;
        assert_eq!(Service::parse("fixed:5ms"), Ok(Service::Fixed(ms(5))));
        assert_eq!(
            Service::parse("stall:1ms/1000"),
            Ok(Service::Stall(ms(1), 1000))
        );
        assert_eq!(
            Service::parse("pareto:1ms,1.5"),
            Ok(Service::Pareto(ms(1), 1.5))
        );
        assert!(Service::parse("stall:1ms/0").is_err() && Service::parse("often").is_err());
        assert_eq!(parse_fault("reset/100"), Ok((Fault::Reset, 100)));
        assert!(parse_fault("reset/0").is_err() && parse_fault("fire/3").is_err());
    }

    #[test]
    fn service_times_have_their_distribution() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut mean = |service: Service| {
            let total: i64 = (1..=50_000)
                .map(|n| service.time_ns(n, 1024, &mut random))
                .sum();
            total as f64 / 50_000.0
        };
        let ms = Duration::from_millis;
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.05;
        assert!(near(mean(Service::Exponential(ms(5))), 5e6));
        // The mean of a Pareto distribution is its minimum times a / (a - 1).
        assert!(near(mean(Service::Pareto(ms(1), 3.0)), 1.5e6));
        assert!(near(mean(Service::Stall(ms(1), 1000)), 1e3));
        assert!(near(mean(Service::BySize(ms(1))), 1e6));
    }
}

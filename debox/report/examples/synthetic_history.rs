//! Writes a made-up history of many rows, for measuring how long `debox report` takes over it:
//!
//!     cargo run --release -p debox-report --example synthetic_history -- 50000000 /tmp/big.parquet
//!
//! A server of 16 threads: one row in eight sleeps, and the cost of its mmap grows.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use debox_history::{Limits, Meta, Writer, SCHEMA};
use debox_model::history::{Budget, Call, Sleep, Text};

const CALLS: [(&str, i32, u64); 10] = [
    ("read", 0, 900),
    ("write", 1, 1100),
    ("openat", 257, 1500),
    ("close", 3, 200),
    ("fstat", 5, 250),
    ("epoll_wait", 232, 700),
    ("sendfile", 40, 6000),
    ("mmap", 9, 2000),
    ("accept4", 288, 3000),
    ("futex", 202, 600),
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let (rows, path) = (words.next(), words.next());
    let rows: u64 = rows.context("how many rows?")?.parse()?;
    let path = path.context("which file?")?;
    let meta = Meta {
        schema: SCHEMA.into(),
        writer: "synthetic".into(),
        host: "nowhere".into(),
        kernel: "0.0".into(),
        command: vec!["a".into(), "server".into()],
        cpus: 8,
        detail: vec!["sleeps".into()],
        stacks_from_ns: 10_000,
        realtime_offset_ns: 1_700_000_000_000_000_000,
        started_ns: 1_000_000,
        ..Meta::default()
    };
    let mut writer = Writer::create(Path::new(&path), meta, Limits::default())?;
    let mut random = Random(88_172_645_463_325_252);
    let text = |text: &str| -> Text { Rc::from(text) };
    let names: Vec<Text> = CALLS.iter().map(|(name, ..)| text(name)).collect();
    let comms: Vec<Text> = (0..16).map(|at| text(&format!("worker-{at}"))).collect();
    let stacks: Vec<(Text, Text)> = (0..200)
        .map(|at| {
            let caller = format!("serve{at}+0x1f (cache.c:{at})");
            let stack = format!("_start;main+0x1 (main.c:1);loop{};{caller}", at % 9);
            (text(&caller), text(&stack))
        })
        .collect();
    let labels = [
        ("page read", "disk", "filemap_read"),
        ("inode lock", "lock", "open_last_lookups"),
        ("epoll", "idle", "ep_poll"),
        ("pipe empty", "process", "pipe_read"),
        ("futex", "lock", "futex_wait"),
    ];
    let labels = labels.map(|(label, class, site)| {
        let stack = format!("entry_SYSCALL_64;do_syscall_64;{site};schedule");
        (text(label), text(class), text(site), text(&stack))
    });
    let resources: Vec<Text> = (0..5000)
        .map(|at| text(&format!("/srv/file-{at}")))
        .collect();
    let (task, softirq) = (text("task"), text("softirq"));
    let (exact, on_cpu) = (text("exact"), text("on CPU"));
    let mut now = 2_000_000u64;
    for row in 0..rows {
        let (thread, at) = (random.below(16) as usize, random.below(10) as usize);
        let base = CALLS[at].2;
        let mut cpu = base + random.below(base);
        if CALLS[at].0 == "mmap" {
            cpu += row * 20_000 / rows.max(1);
        }
        now += random.below(400);
        let sleeps = if random.below(8) == 0 {
            let (label, class, site, stack) = &labels[random.below(5) as usize];
            let most = 1 << (10 + random.below(14));
            let owned = &**class == "lock";
            vec![Sleep {
                begin_ns: now + cpu / 2,
                blocked_ns: 5_000 + random.below(most),
                runqueue_ns: 1_500,
                label: label.clone(),
                class: class.clone(),
                site: site.clone(),
                stack: Some(stack.clone()),
                resource: Some(resources[random.below(5000) as usize].clone()),
                waker_kind: if owned { task.clone() } else { softirq.clone() },
                waker_tid: owned.then_some(101),
                waker_comm: owned.then(|| comms[1].clone()),
                owner_certainty: owned.then(|| exact.clone()),
                owner_tid: owned.then_some(101),
                owner_comm: owned.then(|| comms[1].clone()),
                owner_doing: owned.then(|| on_cpu.clone()),
                ..Sleep::default()
            }]
        } else {
            Vec::new()
        };
        let (blocked, runqueue) = sleeps
            .first()
            .map_or((0, 0), |sleep| (sleep.blocked_ns, sleep.runqueue_ns));
        let wall = cpu + blocked + runqueue;
        let from = (wall >= 10_000).then(|| &stacks[random.below(200) as usize]);
        writer.append(&Call {
            pid: 100,
            tid: 100 + thread as u32,
            comm: comms[thread].clone(),
            name: names[at].clone(),
            number: CALLS[at].1,
            ordinal: row / 16 + 1,
            start_ns: now,
            wall_ns: wall,
            budget: Budget {
                cpu_ns: cpu,
                blocked_ns: blocked,
                runqueue_ns: runqueue,
                preempted_ns: 0,
                irq_ns: None,
            },
            args: [row % 1000, now, 4096],
            caller: from.map(|(caller, _)| caller.clone()),
            stack: from.map(|(_, stack)| stack.clone()),
            sleeps,
            ..Call::default()
        })?;
    }
    writer.meta_mut().ended_ns = now;
    writer.meta_mut().complete = true;
    let written = writer.finish()?;
    eprintln!("{} rows, {} bytes", written.rows, written.bytes);
    Ok(())
}

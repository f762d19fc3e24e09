// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use debox_skipped::skipped;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::sync::LazyLock;

fn ticket(number: u64) -> Ticket {
    Ticket {
        connection: 1,
        number,
    }
}

/// Its result is always wanted.
fn job(inbox: &Arc<Inbox>, number: u64, work: Work) -> Job {
    static ALWAYS: LazyLock<Want> = LazyLock::new(Want::default);
    let caller = Caller::new(ticket(number), Arc::clone(inbox), &ALWAYS, Duration::MAX);
    Job { caller, work }
}

/// The queue has room for it.
fn submit(pool: &Pool, inbox: &Arc<Inbox>, number: u64, work: Work) {
    assert!(pool.submit(job(inbox, number, work)));
}

fn wait_for(inbox: &Inbox, count: usize) -> Vec<(Ticket, Result)> {
    let mut results = Vec::new();
    while results.len() < count {
        let mut ready = [PollFd::new(&inbox.wakes, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut ready, Some(&timeout)), Ok(1), "no result came");
        inbox.take(|ticket, result| results.push((ticket, result)));
    }
    results
}

/// Jobs that come while all helpers wait for a disk get helpers of their own.
#[test]
fn a_helper_that_waits_keeps_no_job_from_another() {
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let pool =
        Pool::start("helper", 4, 10, Device::default(), Arc::default(), || {}).expect("threads");
    let barrier = Arc::new(std::sync::Barrier::new(4));
    for number in 0..4 {
        // The helpers before are already waiting.
        std::thread::sleep(Duration::from_millis(20));
        submit(&pool, &inbox, number, Work::Meet(Arc::clone(&barrier)));
    }
    assert_eq!(wait_for(&inbox, 4).len(), 4);
    assert_eq!(pool.threads(), 4);
}

#[test]
fn jobs_are_answered_by_as_many_threads_as_it_takes() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), vec![7; 300_000]).expect("room");
    let root = Arc::new(Root::open(place.path()).expect("it is there"));
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let pool =
        Pool::start("helper", 4, 1000, Device::default(), Arc::default(), || {}).expect("threads");
    for number in 0..200u64 {
        let work = Work::Open {
            root: Arc::clone(&root),
            names: vec![b"none".to_vec(), b"a".to_vec()],
            first: 0,
        };
        submit(&pool, &inbox, number, work);
    }
    let results = wait_for(&inbox, 200);
    let mut numbers: Vec<u64> = results.iter().map(|(ticket, _)| ticket.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200).collect::<Vec<u64>>());
    assert!((1..=4).contains(&pool.threads()));
    let Some((_, Result::Opened(1, Lookup::Found(file)))) = results.into_iter().next() else {
        panic!("it is there");
    };
    let work = Work::Warm {
        file,
        begin: 0,
        end: 1 << 20,
    };
    submit(&pool, &inbox, 7, work);
    assert!(matches!(wait_for(&inbox, 1)[0], (_, Result::Warmed)));
}

fn open(root: &Arc<Root>, names: Vec<Vec<u8>>) -> Work {
    Work::Open {
        root: Arc::clone(root),
        names,
        first: 0,
    }
}

/// A pool whose only helper waits until `release` is passed, too.
fn busy(inbox: &Arc<Inbox>, queue: usize) -> (Arc<Pool>, Arc<std::sync::Barrier>) {
    let pool =
        Pool::start("helper", 1, queue, Device::default(), Arc::default(), || {}).expect("threads");
    let release = Arc::new(std::sync::Barrier::new(2));
    submit(&pool, inbox, u64::MAX, Work::Meet(Arc::clone(&release)));
    let began = std::time::Instant::now();
    while pool.waiting() > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "no helper took it"
        );
        std::thread::yield_now();
    }
    (pool, release)
}

#[test]
fn requests_for_one_name_are_one_job() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), "of a").expect("room");
    let root = Arc::new(Root::open(place.path()).expect("it is there"));
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let (pool, release) = busy(&inbox, 10);
    let ask = |number, names: &[&str]| {
        let names = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        pool.submit(job(&inbox, number, open(&root, names)))
    };
    assert!((0..5).all(|number| ask(number, &["a"])));
    assert!((5..10).all(|number| ask(number, &["none", "a"])));
    assert_eq!(pool.waiting(), 2);
    // Of those that wait for others' jobs there are no more than of jobs.
    assert!((10..12).all(|number| ask(number, &["a"])));
    assert!(!ask(12, &["a"]));
    release.wait();
    let results = wait_for(&inbox, 13);
    for (Ticket { number, .. }, result) in results {
        match (number, result) {
            (u64::MAX, _) => {}
            (0..5 | 10..12, Result::Opened(0, Lookup::Found(file))) => assert_eq!(file.size, 4),
            (5..10, Result::Opened(1, Lookup::Found(file))) => assert_eq!(file.size, 4),
            (number, _) => panic!("{number} has another's answer"),
        }
    }
    let counts = &pool.counts;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&counts.joined), count(&counts.refused)), (10, 1));
    // What is asked for later is a job of its own.
    assert!(ask(20, &["a"]));
    assert_eq!(wait_for(&inbox, 1).len(), 1);
    assert_eq!(count(&counts.joined), 10);
}

#[test]
fn a_job_for_which_no_client_waits_any_more_is_left_out() {
    let place = tempfile::tempdir().expect("a directory");
    let root = Arc::new(Root::open(place.path()).expect("it is there"));
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let (pool, release) = busy(&inbox, 10);
    let ask = |number, want: &Want, name: &str| {
        let caller = Caller::new(ticket(number), Arc::clone(&inbox), want, Duration::MAX);
        let work = open(&root, vec![name.as_bytes().to_vec()]);
        assert!(pool.submit(Job { caller, work }));
    };
    let [waits, goes] = [Want::default(), Want::default()];
    ask(0, &goes, "gone");
    ask(1, &goes, "gone");
    ask(2, &goes, "joined");
    ask(3, &waits, "joined");
    ask(4, &waits, "own");
    drop(goes);
    release.wait();
    let results = wait_for(&inbox, 4);
    let mut numbers: Vec<u64> = results.iter().map(|(ticket, _)| ticket.number).collect();
    numbers.sort_unstable();
    // Who has gone takes no result, but the job that another has joined gives one for each.
    assert_eq!(numbers, [2, 3, 4, u64::MAX]);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(
        (count(&pool.counts.left_out), count(&pool.counts.jobs)),
        (1, 3)
    );
    // The name is as any other again.
    ask(5, &waits, "gone");
    assert_eq!(wait_for(&inbox, 1)[0].0.number, 5);
    pool.end();
}

/// Nor a client with many names the parts of a file that is being sent.
#[test]
fn who_asks_for_many_parts_of_a_file_keeps_no_name_waiting() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("large"), vec![1; 100_000]).expect("room");
    let root = Arc::new(Root::open(place.path()).expect("it is there"));
    let Lookup::Found(file) = root.open_waiting(b"large") else {
        panic!("it is there");
    };
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let (pool, release) = busy(&inbox, 100);
    for begin in 0..50 {
        let file = Arc::clone(&file);
        let end = begin + 1000;
        submit(&pool, &inbox, begin, Work::Warm { file, begin, end });
    }
    submit(&pool, &inbox, 100, open(&root, vec![b"large".to_vec()]));
    release.wait();
    let results = wait_for(&inbox, 52);
    let at = results.iter().position(|(it, _)| it.number == 100);
    // Behind that for which the helper was busy, and one part.
    assert!(at <= Some(2), "{at:?}");
    pool.end();
}

/// Each would come too late if the oldest one were always begun.
#[test]
fn a_disk_that_is_asked_for_more_than_it_can_do_works_for_those_who_still_wait() {
    const PATIENCE: Duration = Duration::from_millis(300);
    const JOB: Duration = Duration::from_millis(20);
    const TWICE_AS_OFTEN: Duration = Duration::from_millis(10);
    let pool =
        Pool::start("helper", 1, 1000, Device::default(), Arc::default(), || {}).expect("threads");
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let want = Want::default();
    let began = std::time::Instant::now();
    let (mut asked, mut in_time, mut late) = (Vec::new(), 0, 0);
    while began.elapsed() < Duration::from_secs(3) {
        let caller = Caller::new(
            ticket(asked.len() as u64),
            Arc::clone(&inbox),
            &want,
            PATIENCE,
        );
        let work = Work::Call(Box::new(|_| std::thread::sleep(JOB)));
        assert!(pool.submit(Job { caller, work }));
        asked.push(std::time::Instant::now());
        std::thread::sleep(TWICE_AS_OFTEN);
        inbox.take(|ticket, _| match asked[ticket.number as usize].elapsed() {
            took if took <= PATIENCE => in_time += 1,
            _ => late += 1,
        });
    }
    let left_out = pool.counts.left_out.load(Ordering::Relaxed);
    // The helper could do 150, and is hardly ever idle.
    assert!(
        in_time > 80 && late < in_time / 4,
        "{in_time} in time, {late} late, {left_out} left out"
    );
    assert!(left_out > 20, "{left_out} left out");
    pool.end();
}

/// However many connections a scanner opens, and although all helpers wait for the disk.
#[test]
fn a_scanner_with_many_connections_is_not_ahead_of_others() {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("a"), "of a").expect("room");
    let root = Arc::new(Root::open(place.path()).expect("it is there"));
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let pools = pools::Pools::start([root.device], |_, _, device| {
        Pool::start("helper", 1, 1000, device, Arc::default(), || {})
    });
    let pools = pools.expect("threads");
    let pair = pools.all().next().expect("the device's");
    let hang = |pool: &Pool| {
        let release = Arc::new(std::sync::Barrier::new(2));
        submit(pool, &inbox, u64::MAX, Work::Meet(Arc::clone(&release)));
        let began = std::time::Instant::now();
        while pool.waiting() > 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "no helper");
            std::thread::yield_now();
        }
        release
    };
    let ask = |number: u64, address: &str, has_found: bool, name: &str| {
        let origin = pools::Origin {
            peer: Some(address.parse().expect(address)),
            asked: 1,
            has_found,
        };
        let work = open(&root, vec![name.as_bytes().to_vec()]);
        pools.submit(job(&inbox, number, work), origin)
    };
    let scan = |from: u64, count: u64| {
        (from..from + count).for_each(|number| {
            assert!(ask(number, "192.0.2.1", false, &format!("none-{number}")));
        });
    };
    let (names, missing) = (hang(&pair.names), hang(&pair.missing));
    scan(0, 500);
    // No more than a client that is not known may have.
    assert_eq!((pair.names.waiting(), pair.missing.waiting()), (16, 484));
    assert!(ask(1000, "192.0.2.2", false, "a"));
    assert_eq!(pair.names.waiting(), 17);
    names.wait();
    let results = wait_for(&inbox, 18);
    assert!(results.iter().any(|(it, _)| it.number == 1000));
    missing.wait();
    wait_for(&inbox, 485);
    // Now it is known.
    let (names, missing) = (hang(&pair.names), hang(&pair.missing));
    scan(2000, 500);
    assert_eq!((pair.names.waiting(), pair.missing.waiting()), (1, 499));
    // Who shares its address, as behind a proxy, and gets files on this connection.
    assert!(ask(3000, "192.0.2.1", true, "a"));
    assert_eq!(pair.names.waiting(), 2);
    names.wait();
    missing.wait();
    wait_for(&inbox, 503);
    pools.end();
}

/// All helpers of one device wait for it, and another device's do not notice.
#[test]
fn a_device_that_does_not_answer_keeps_its_own_helpers_only() {
    let place = tempfile::tempdir().expect("a directory");
    let root = |name: &str, device: u64| {
        std::fs::create_dir(place.path().join(name)).expect("room");
        let opened = Root::open(&place.path().join(name)).expect("it is there");
        Arc::new(opened.pretend_device(device))
    };
    let (dead, alive) = (root("dead", 1), root("alive", 2));
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let pools = pools::Pools::start([1, 1, 2], |_, _, device| {
        Pool::start("helper", 1, 10, device, Arc::default(), || {})
    });
    let pools = pools.expect("threads");
    let names: Vec<&str> = pools.all().map(|pair| pair.device.as_str()).collect();
    assert_eq!(names, ["0:1", "0:2", "other"]);
    let release = Arc::new(std::sync::Barrier::new(2));
    let hangs = Work::Meet(Arc::clone(&release));
    let of_dead = pools.all().next().expect("the first device's");
    submit(&of_dead.names, &inbox, 0, hangs);
    let ask = |number: u64, root: &Arc<Root>| {
        let work = open(root, vec![number.to_string().into_bytes()]);
        pools.submit(job(&inbox, number, work), pools::Origin::default())
    };
    assert!((1..4).all(|number| ask(number, &dead)));
    assert!((4..8).all(|number| ask(number, &alive)));
    let mut answered: Vec<u64> = wait_for(&inbox, 4)
        .iter()
        .map(|(it, _)| it.number)
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, [4, 5, 6, 7]);
    release.wait();
    assert_eq!(wait_for(&inbox, 4).len(), 4);
}

#[test]
fn helpers_take_no_cpu_from_a_running_loop() {
    if policy::own() != libc::SCHED_OTHER {
        return skipped(
            "the policy of helpers: these tests run under another one than SCHED_OTHER",
        );
    }
    let (send, receive) = std::sync::mpsc::channel();
    let tell = move || {
        // The others come from the first one.
        let next = std::thread::spawn(policy::own);
        let both = (policy::own(), next.join().expect("it ends"));
        send.send(both).expect("the test waits");
    };
    let pool =
        Pool::start("helper", 1, 1, Device::default(), Arc::default(), tell).expect("threads");
    let told = receive.recv_timeout(Duration::from_secs(20));
    assert_eq!(told, Ok((libc::SCHED_BATCH, libc::SCHED_BATCH)));
    assert_eq!(policy::own(), libc::SCHED_OTHER);
    pool.end();
}

/// Jobs of two reads each, as long as `goes_on` says, and some more than there are helpers at any time.
fn read_twice(
    pool: &Arc<Pool>,
    read: impl Fn() + Send + Sync + 'static,
    goes_on: impl Fn() -> bool,
) {
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let read = Arc::new(read);
    let (mut submitted, mut ended) = (0, 0);
    let began = std::time::Instant::now();
    while goes_on() && began.elapsed() < Duration::from_secs(20) {
        while submitted < ended + 24 {
            let read = Arc::clone(&read);
            let work = Work::Call(Box::new(move |turn| {
                read();
                turn.pass();
                read();
            }));
            submit(pool, &inbox, submitted, work);
            submitted += 1;
        }
        ended += wait_for(&inbox, 1).len() as u64;
    }
    wait_for(&inbox, (submitted - ended) as usize);
}

fn pool_of_device() -> Arc<Pool> {
    Pool::start("helper", 16, 100, Device::alone(), Arc::default(), || {}).expect("threads")
}

#[test]
fn jobs_take_turns_on_a_device_that_does_one_read_at_a_time() {
    let pool = pool_of_device();
    let device = std::sync::Mutex::new(());
    let read = move || {
        let _one = device.lock();
        std::thread::sleep(Duration::from_millis(1));
    };
    read_twice(&pool, read, || !pool.takes_turns());
    assert!(pool.takes_turns());
    pool.end();
}

#[test]
fn jobs_take_no_turns_on_a_device_that_does_many() {
    let pool = pool_of_device();
    let jobs = || pool.counts.jobs.load(Ordering::Relaxed);
    let read = || std::thread::sleep(Duration::from_millis(1));
    read_twice(&pool, read, || {
        jobs() < 100 || (pool.takes_turns() && jobs() < 1000)
    });
    assert!(!pool.takes_turns());
    pool.end();
}

#[test]
fn who_opens_a_file_brings_its_first_bytes() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("a");
    std::fs::write(&path, vec![7; 300_000]).expect("room");
    let on_disk = std::fs::File::open(&path).expect("it is there");
    on_disk.sync_all().expect("a disk");
    // To ask for a page that is not in memory may bring it, and would bring those behind it without this. So none is asked for twice.
    rustix::fs::fadvise(&on_disk, 0, None, rustix::fs::Advice::Random).expect("a file");
    let there = |at: u64| {
        let mut byte = [0];
        let mut parts = [std::io::IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(&on_disk, &mut parts, at, rustix::io::ReadWriteFlags::NOWAIT) == Ok(1)
    };
    let tells = there(0);
    rustix::fs::fadvise(&on_disk, 0, None, rustix::fs::Advice::DontNeed).expect("a file");
    if !tells || there(250_000) {
        return skipped("that helpers bring first bytes: the file system does not tell what is in memory, or keeps what it is asked to drop");
    }
    let root = Arc::new(Root::open(place.path()).expect("it is there"));
    let names = [b"a".to_vec()];
    let open = |first| {
        let mut scratch = vec![0; SCRATCH];
        let opened = work::open_on_device(&root, &names, first, &mut scratch, &Turn::none());
        assert!(matches!(opened, Some(Result::Opened(0, Lookup::Found(_)))));
    };
    open(0);
    assert!(!there(100_000), "nothing was asked for");
    open(200_000);
    assert!(there(0) && there(199_999), "the first bytes are in memory");
}

/// Names that are asked for beyond a client's window, as by scanners, are at the same disk as all others.
#[test]
fn all_jobs_of_a_device_take_turns_with_each_other() {
    const JOBS: u64 = 10;
    let inbox = Arc::new(Inbox::new().expect("descriptors"));
    let pools = pools::Pools::start([1], |_, _, device| {
        Pool::start("helper", 16, 100, device, Arc::default(), || {})
    });
    let pools = pools.expect("threads");
    let pair = pools.all().next().expect("the device's");
    let turns = pair.names.device.turns.as_ref().expect("it is one device");
    turns.take_always();
    let at_once = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let call = |pool: &Pool, number: u64| {
        let at_once = Arc::clone(&at_once);
        let work = Work::Call(Box::new(move |_| {
            let now = at_once.0.fetch_add(1, Ordering::SeqCst) + 1;
            at_once.1.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(3));
            at_once.0.fetch_sub(1, Ordering::SeqCst);
        }));
        submit(pool, &inbox, number, work);
    };
    for number in 0..JOBS {
        call(&pair.names, number);
        call(&pair.missing, JOBS + number);
    }
    let results = wait_for(&inbox, 2 * JOBS as usize);
    // As no scanner keeps a cold file waiting longer than one of its own names, they are done in turn.
    let order: Vec<u64> = results.iter().map(|(ticket, _)| ticket.number).collect();
    let last_name = order.iter().rposition(|number| *number < JOBS);
    assert!(last_name >= Some(order.len() - 5), "{order:?}");
    assert_eq!(at_once.1.load(Ordering::SeqCst), 2);
    // Two at work, one that waits for its turn, and one for the next job.
    for pool in [&pair.names, &pair.missing] {
        assert!(pool.threads() <= 4, "{} threads", pool.threads());
    }
    pools.end();
}

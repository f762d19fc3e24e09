use std::os::fd::BorrowedFd;

use super::*;

/// Maps the page as a client does.
fn map(page: BorrowedFd, protection: i32) -> Option<*mut u32> {
    let fd = page.as_raw_fd();
    // SAFETY: a new mapping, wherever there is room; the tests leave it there.
    let base = unsafe { libc::mmap(ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, fd, 0) };
    (base != libc::MAP_FAILED).then_some(base.cast())
}

fn holder(word: *mut u32) -> u32 {
    // SAFETY: the tests leave the page where it is.
    unsafe { AtomicU32::from_ptr(word) }.load(Ordering::SeqCst) & HOLDER
}

#[test]
fn the_word_has_a_holder_until_the_end() {
    let presence = Presence::begin().unwrap();
    let page = presence.for_client().unwrap();
    let word = map(page.as_fd(), libc::PROT_READ).unwrap();
    assert_ne!(holder(word), 0);
    drop(presence);
    assert_eq!(holder(word), 0);
}

#[test]
fn the_word_has_no_holder_after_a_thread_that_did_not_end_in_order() {
    let file = memory_file::create(c"debox-test", LENGTH as u64, memory_file::READ_BY_ALL).unwrap();
    let word = map(file.as_fd(), libc::PROT_READ).unwrap();
    let page = Page::map(&file).unwrap();
    let thread = std::thread::spawn(move || {
        // They stay allocated, as all memory of a killed process does until it has ended.
        let holds = Box::leak(Box::new(RobustList::default()));
        let page = Box::leak(Box::new(page));
        holds.take(page.word()).unwrap();
        assert_ne!(holder(word_of(page)), 0);
    });
    thread.join().unwrap();
    assert_eq!(holder(word), 0);
}

fn word_of(page: &Page) -> *mut u32 {
    page.0
}

#[test]
fn the_page_shows_the_word_and_zeros() {
    let presence = Presence::begin().unwrap();
    let page = presence.for_client().unwrap();
    let word = map(page.as_fd(), libc::PROT_READ).unwrap();
    // SAFETY: the page is mapped, and stays.
    let words = unsafe { std::slice::from_raw_parts(word, LENGTH / 4) };
    let set: Vec<usize> = (0..words.len()).filter(|at| words[*at] != 0).collect();
    assert_eq!(set, [0]);
    assert_eq!(words[0] & !HOLDER, 0);
}

#[test]
fn nobody_else_writes_the_page() {
    let presence = Presence::begin().unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let given = presence.for_client().unwrap();
    // A client of the broker's own user could open it for writing: the seal holds.
    for page in [presence.file.as_fd(), given.as_fd()] {
        assert!(map(page, both).is_none());
        let word = map(page, libc::PROT_READ).unwrap();
        // SAFETY: changes, if anything, what the test has mapped itself.
        assert_ne!(unsafe { libc::mprotect(word.cast(), LENGTH, both) }, 0);
        assert!(nix::unistd::write(page, b"x").is_err());
        assert!(nix::unistd::ftruncate(page, 0).is_err());
        assert_ne!(holder(word), 0);
    }
}

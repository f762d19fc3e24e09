// SPDX-License-Identifier: MIT OR Apache-2.0
//! What callers.c does, in Rust.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

static SUM: AtomicI64 = AtomicI64::new(0);

fn add(what: i64) {
    SUM.fetch_add(what, Ordering::Relaxed);
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn read(descriptor: i32, bytes: *mut u8, size: usize) -> isize;
    fn nanosleep(pause: *const Timespec, rest: *mut Timespec) -> i32;
}

const PAUSE: Timespec = Timespec {
    seconds: 0,
    nanoseconds: 8_000_000,
};

#[inline(always)]
fn inlined_helper(zeros: i32) {
    let mut bytes = [0u8; 24];
    add(unsafe { read(zeros, bytes.as_mut_ptr(), 24) } as i64); // inlined read
}

#[inline(always)]
fn inlined_sleep() {
    add(unsafe { nanosleep(&PAUSE, std::ptr::null_mut()) }.into()); // inlined sleep
}

#[inline(never)]
fn call_directly(zeros: i32) {
    let mut bytes = [0u8; 16];
    add(unsafe { read(zeros, bytes.as_mut_ptr(), 16) } as i64); // direct read
}

#[inline(never)]
fn call_inlined(zeros: i32) {
    inlined_helper(zeros); // caller of inlined
    add(1);
}

#[inline(never)]
fn call_library(zeros: &mut File) {
    let mut bytes = [0u8; 8];
    add(zeros.read(&mut bytes).unwrap() as i64); // library read
}

#[inline(never)]
fn sleep_directly() {
    add(unsafe { nanosleep(&PAUSE, std::ptr::null_mut()) }.into()); // direct sleep
}

#[inline(never)]
fn sleep_inlined() {
    inlined_sleep(); // sleeper of inlined
    add(1);
}

#[inline(never)]
fn sleep_library() {
    std::thread::sleep(Duration::from_millis(8)); // library sleep
    add(1);
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut stream = File::open("/dev/zero").unwrap();
    let zeros = File::open("/dev/zero").unwrap();
    for _ in 0..rounds {
        for _ in 0..3 {
            call_directly(zeros.as_raw_fd());
        }
        for _ in 0..2 {
            call_inlined(zeros.as_raw_fd());
        }
        call_library(&mut stream);
        sleep_directly();
        sleep_inlined();
        sleep_library();
    }
}

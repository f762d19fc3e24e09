# SPDX-License-Identifier: MIT OR Apache-2.0
"""Machines that one machine can be: layers, limits and file systems, each prepared and removed again.

All of them run the same image (roots.py), so a program's libraries, the files that it reads and those that it writes are on
the machine's file system."""

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import subprocess

import gvisor
import guests
import mounts
import roots
from mounts import Missing, directory, mounted, run


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Machine:
    """How a command is started on it, and where its files are."""

    def __init__(self, name, root, prefix=(), before=None, enter=None, has_own_disk=False, rest_s=0):
        self.name = name
        self.root = root
        # Whether what is written there cannot be seen from outside.
        self.has_own_disk = has_own_disk
        # Seen from inside.
        self.directory = f"/tmp/on-{name}"
        self.prefix = list(prefix)
        self.before = before
        # How long it has to be idle before a program is started, so that earlier ones have no effect.
        self.rest_s = rest_s
        # Whether commands are started by a program that runs elsewhere, so their CPU time is not that of its children.
        self.is_entered = enter is not None
        self.enter = enter or ["chroot", root]
        os.makedirs(self.outside(""), exist_ok=True)

    def outside(self, name):
        """A file of its directory, seen from outside."""
        return os.path.join(self.root + self.directory, name)

    def inside(self, words):
        """The words that start a command there. The environment is the same everywhere: it changes what programs do."""
        environment = [f"TMPDIR={self.directory}", f"PATH={PATH}", "HOME=/tmp", "LANG=C.UTF-8"]
        return [*self.prefix, *self.enter, "/usr/bin/env", "-i", *environment, *words]

    def start(self, words, **options):
        return subprocess.Popen(self.inside(words), preexec_fn=self.before, start_new_session=True, **options)


@contextlib.contextmanager
def ended(process):
    """Whatever happens, nothing of it runs on, such as a server whose client has failed: its files and mounts are removed
    next."""
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def plain(image):
    """The image on an ext4 of its own: how long one takes depends on what it has been used for."""
    yield Machine("plain", image)


@contextlib.contextmanager
def one_cpu(image):
    cpu = max(os.sched_getaffinity(0))
    yield Machine("one-cpu", image, before=lambda: os.sched_setaffinity(0, [cpu]))


@contextlib.contextmanager
def traced(image):
    """On one CPU: how long a traced call takes depends on whether its tracer is on the same one, and that changes from
    one run to the next."""
    if not shutil.which("strace"):
        raise Missing("strace is not installed")
    cpu = max(os.sched_getaffinity(0))
    command = ["strace", "-f", "-qq", "-o", "/dev/null"]
    yield Machine("strace", image, command, before=lambda: os.sched_setaffinity(0, [cpu]))


@contextlib.contextmanager
def half_a_cpu():
    """Yields what the process calls that is to have no more."""
    name = f"hbench-predict-{os.getpid()}"
    if os.path.exists("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") or os.path.isdir("/sys/fs/cgroup/cpu/"):
        group = f"/sys/fs/cgroup/cpu/{name}"
        limits = [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")]
    else:
        group = f"/sys/fs/cgroup/{name}"
        limits = [("cpu.max", "50000 100000")]
    try:
        os.mkdir(group)
    except OSError as error:
        raise Missing(f"no control group can be made: {error}") from error

    def write(file, text):
        with open(os.path.join(group, file), "w", encoding="ascii") as out:
            out.write(text)

    try:
        try:
            for file, text in limits:
                write(file, text)
        except OSError as error:
            raise Missing(f"no quota can be set: {error}") from error
        yield lambda: write("cgroup.procs", str(os.getpid()))
    finally:
        os.rmdir(group)


@contextlib.contextmanager
def quota(image):
    with half_a_cpu() as enter:
        # Two periods: what an earlier program has used up is granted again.
        yield Machine("quota", image, before=enter, rest_s=0.2)


# Classic BPF: load an argument's low half, compare it with a constant that it never is, allow.
LOAD, JUMP, RETURN = 0x20, 0x15, 0x06
ALLOW = 0x7FFF0000
ARGUMENT = 16
COMPARISONS = 400


def filter_calls():
    """A seccomp filter whose answer depends on an argument, so the kernel cannot skip it."""
    code = [struct.pack("HBBI", LOAD, 0, 0, ARGUMENT)]
    code += [struct.pack("HBBI", JUMP, 0, 0, 0xDEAD0000 + at) for at in range(COMPARISONS)]
    code.append(struct.pack("HBBI", RETURN, 0, 0, ALLOW))
    program = ctypes.create_string_buffer(b"".join(code))
    header = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_seccomp, filter_mode, header, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@contextlib.contextmanager
def seccomp(image):
    yield Machine("seccomp", image, before=filter_calls)


def outside_of(image):
    """The directory on the host's file system in which all of this is."""
    return os.path.dirname(os.path.dirname(image))


@contextlib.contextmanager
def copied(image, name, *mount):
    """The image on a file system of its own."""
    with directory(outside_of(image), f"on-{name}") as path, mounted(path, *mount):
        run("cp", "-a", "-x", f"{image}/.", path)
        with roots.connected(path):
            yield Machine(name, path)


@contextlib.contextmanager
def tmpfs(image):
    with copied(image, "tmpfs", "-t", "tmpfs", "-o", "size=4g", "hbench") as machine:
        yield machine


# Otherwise the kernel would initialize the rest later, while something is measured. What programs write stays.
EXT4 = ("mkfs.ext4", "-q", "-F", "-i", "32768", "-E", "lazy_itable_init=0,lazy_journal_init=0")


@contextlib.contextmanager
def device(work, kind, *make):
    """A file with a file system, to be mounted by a loop device."""
    path = os.path.join(work, f"{kind}.img")
    with open(path, "wb") as file:
        file.truncate(16 << 30)
    try:
        run(*make, path)
        yield path
    finally:
        os.unlink(path)


@contextlib.contextmanager
def on_loop(image, kind, *make):
    """The image on a file system of another kind, as the image itself on a loop device over a file."""
    with device(outside_of(image), kind, *make) as path, copied(image, kind, "-o", "loop", path) as machine:
        yield machine


@contextlib.contextmanager
def xfs(image):
    with on_loop(image, "xfs", "mkfs.xfs", "-q", "-f") as machine:
        yield machine


@contextlib.contextmanager
def btrfs(image):
    with on_loop(image, "btrfs", "mkfs.btrfs", "-q", "-f") as machine:
        yield machine


@contextlib.contextmanager
def of_host(image):
    """A copy on the file system of the host."""
    with directory(outside_of(image), "on-host") as path:
        run("cp", "-a", "-x", f"{image}/.", path)
        with roots.connected(path):
            yield Machine("host", path)


@contextlib.contextmanager
def overlay(image):
    """The image below a layer that takes what is written, as containers have it; both are on the same file system."""
    disk = os.path.dirname(image)
    with directory(disk, "layers") as layers, directory(outside_of(image), "on-overlay") as path:
        upper, worker = (os.path.join(layers, part) for part in ("upper", "work"))
        for part in (upper, worker):
            os.mkdir(part)
        options = f"lowerdir={image},upperdir={upper},workdir={worker}"
        with mounted(path, "-t", "overlay", "-o", options, "hbench"), roots.connected(path):
            yield Machine("overlay", path)


@contextlib.contextmanager
def in_gvisor(image):
    """gVisor's kernel, in which `runsc exec` starts each command."""
    # Its kernel does not see what is made outside after it has started.
    os.makedirs(f"{image}/tmp/on-gvisor")
    try:
        with gvisor.sandbox(image) as enter:
            yield Machine("gvisor", image, enter=enter)
    except gvisor.Unavailable as reason:
        raise Missing(str(reason)) from reason


# What boots guests, and where their kernels are kept.
TARGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..", os.environ.get("CARGO_TARGET_DIR", "target"))


@contextlib.contextmanager
def guest(image, kernel, mitigated=False):
    """A virtual machine without hardware virtualization, with this kernel."""
    name = f"guest-{kernel}" + "-mitigated" * mitigated
    # Made before the disk is, so it is on it.
    machine = Machine(name, image, has_own_disk=True)
    driver, cache = (os.path.join(TARGET, place) for place in ("release/debox-guests", "guests"))
    try:
        with (
            device(outside_of(image), name, *EXT4, "-d", image) as disk,
            guests.booted(driver, cache, kernel, disk, mitigated) as enter,
        ):
            machine.enter, machine.is_entered = enter, True
            yield machine
    except guests.Unavailable as reason:
        raise Missing(str(reason)) from reason


def guest_old(image):
    return guest(image, "6.1")


def guest_newest(image):
    return guest(image, "newest")


def guest_mitigated(image):
    return guest(image, "newest", mitigated=True)


# The first is where applications are recorded.
ALL = [plain, one_cpu, seccomp, quota, tmpfs, xfs, btrfs, of_host, overlay, in_gvisor, traced]

# They take many times as long as all others, so they are measured only where they are named.
EMULATED = [guest_old, guest_newest, guest_mitigated]


@contextlib.contextmanager
def prepared(work, names, tools):
    """The machines that can be made, and why the others cannot. `tools`: as in `roots.make`."""
    disk = os.path.join(work, "disk")
    image = os.path.join(disk, "image")
    os.mkdir(disk)
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(device(work, "ext4", *EXT4))
        stack.enter_context(mounted(disk, "-o", "loop", path))
        os.mkdir(image)
        roots.make(image, tools)
        made, missing = [], []
        # Before the kernel's file systems are in it, copies are made.
        chosen = [plain, *(make for make in ALL[1:] + EMULATED if make.__name__ in names)] if names else ALL
        for make in chosen:
            try:
                made.append(stack.enter_context(make(image)))
            except Missing as reason:
                missing.append((make.__name__, str(reason)))
        stack.enter_context(roots.connected(image))
        yield made, missing


def scratch():
    return mounts.scratch("hbench-predict.")

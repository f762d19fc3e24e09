# SPDX-License-Identifier: MIT OR Apache-2.0
"""Machines that one machine can be: layers, limits and file systems, each prepared and removed again."""

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import subprocess
import tempfile


class Machine:
    """How a command is started on it, and where its files are."""

    def __init__(self, name, directory, prefix=(), before=None):
        self.name = name
        self.directory = directory
        self.prefix = list(prefix)
        self.before = before

    def start(self, words, **options):
        environment = {**os.environ, "TMPDIR": self.directory}
        return subprocess.Popen(
            [*self.prefix, *words], preexec_fn=self.before, env=environment, start_new_session=True, **options
        )


@contextlib.contextmanager
def ended(process):
    """Whatever happens, nothing of it runs on: its files and mounts are removed next."""
    try:
        yield process
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


class Missing(Exception):
    """What this machine lacks."""


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@contextlib.contextmanager
def directory(work, name):
    path = os.path.join(work, name)
    os.makedirs(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def mounted(point, *words):
    run("mount", *words, point)
    try:
        yield point
    finally:
        run("umount", point)


@contextlib.contextmanager
def plain(work):
    with directory(work, "on-plain") as path:
        yield Machine("plain", path)


@contextlib.contextmanager
def one_cpu(work):
    cpu = max(os.sched_getaffinity(0))
    with directory(work, "on-one-cpu") as path:
        yield Machine("one-cpu", path, before=lambda: os.sched_setaffinity(0, [cpu]))


@contextlib.contextmanager
def traced(work):
    if not shutil.which("strace"):
        raise Missing("strace is not installed")
    with directory(work, "on-strace") as path:
        yield Machine("strace", path, ["strace", "-f", "-qq", "-o", "/dev/null"])


@contextlib.contextmanager
def quota(work):
    """Half a CPU."""
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
        with directory(work, "on-quota") as path:
            yield Machine("quota", path, before=lambda: write("cgroup.procs", str(os.getpid())))
    finally:
        os.rmdir(group)


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
def seccomp(work):
    with directory(work, "on-seccomp") as path:
        yield Machine("seccomp", path, before=filter_calls)


@contextlib.contextmanager
def tmpfs(work):
    with directory(work, "on-tmpfs") as path, mounted(path, "-t", "tmpfs", "-o", "size=1g", "hbench"):
        yield Machine("tmpfs", path)


@contextlib.contextmanager
def loop(work):
    """ext4 on a loop device over a file."""
    image = os.path.join(work, "loop.img")
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    try:
        run("mkfs.ext4", "-q", "-F", image)
        with directory(work, "on-loop") as path, mounted(path, "-o", "loop", image):
            yield Machine("ext4-loop", path)
    finally:
        os.unlink(image)


@contextlib.contextmanager
def overlay(work):
    with directory(work, "layers") as layers, directory(work, "on-overlay") as path:
        lower, upper, worker = (os.path.join(layers, part) for part in ("lower", "upper", "work"))
        for part in (lower, upper, worker):
            os.mkdir(part)
        options = f"lowerdir={lower},upperdir={upper},workdir={worker}"
        with mounted(path, "-t", "overlay", "-o", options, "hbench"):
            yield Machine("overlay", path)


# The first is where applications are recorded.
ALL = [plain, one_cpu, seccomp, quota, tmpfs, loop, overlay, traced]


@contextlib.contextmanager
def prepared(work, names):
    """The machines that can be made, and why the others cannot."""
    with contextlib.ExitStack() as stack:
        made, missing = [], []
        for make in ALL:
            if names and make is not plain and make.__name__ not in names:
                continue
            try:
                made.append(stack.enter_context(make(work)))
            except Missing as reason:
                missing.append((make.__name__, str(reason)))
        yield made, missing


def scratch():
    return tempfile.TemporaryDirectory(prefix="hbench-predict.", dir=os.environ.get("TMPDIR", "/var/tmp"))

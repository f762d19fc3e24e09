# SPDX-License-Identifier: MIT OR Apache-2.0
"""A root directory with some programs, the libraries that they load and the files that they read, as a container's image
would have. On another file system, all files of a program move with it, not only those that it writes."""

import contextlib
import os
import re
import shutil
import stat
import subprocess

from mounts import below, mounted, run

PROGRAMS = """
sh env true date sleep mktemp mkdir rm ls cat tar find wc gzip sha256sum awk sort uniq tail dd
git sqlite3 /usr/bin/python3 gcc as ld redis-server redis-benchmark redis-cli /usr/sbin/nginx ab
head chown chmod setpriv
""".split()

TREES = [
    "/etc",
    "/usr/lib/git-core",
    "/usr/lib/python3.*",
    "/usr/lib/gcc/*/*",
    "/usr/share/doc",
    "/usr/share/perl5",
    "/usr/share/git-core",
    "/usr/include",
    "/usr/lib/postgresql/*/bin",
    "/usr/lib/postgresql/*/lib",
    "/usr/share/postgresql",
    "/usr/share/zoneinfo",
]

# What gcc links with.
LINKED = "crt1.o Scrt1.o crti.o crtn.o libc.so libc_nonshared.a libm.so libmvec.so* libgcc_s.so*"

# Compilers of other languages, more than half of gcc's directory, and what PostgreSQL compiles queries with.
LEFT_OUT = shutil.ignore_patterns("cc1plus", "lto1", "lto-dump", "plugin", "llvmjit*", "bitcode", "pgxs")


def found(pattern):
    """What a shell finds."""
    done = subprocess.run(["sh", "-c", f"ls -d {pattern}"], capture_output=True, text=True, check=False)
    return done.stdout.split()


def libraries(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    return re.findall(r"(/\S+) \(0x", done.stdout)


def place(root, path):
    """Where a file is to be: links of directories are resolved, its own name stays."""
    directory, name = os.path.split(path)
    return root + os.path.join(os.path.realpath(directory), name)


def copy(root, path):
    target = place(root, path)
    if not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.realpath(path), target)


def make(root, tools):
    """`tools`: more programs, by the name that they get in the image's /usr/bin."""
    for name in ("bin", "sbin", "lib", "lib64"):
        if os.path.islink(f"/{name}"):
            os.makedirs(f"{root}/usr/{name}", exist_ok=True)
            os.symlink(f"usr/{name}", f"{root}/{name}")
    for name in ("proc", "sys", "dev", "tmp"):
        os.mkdir(f"{root}/{name}")
    for pattern in TREES:
        for tree in found(pattern):
            shutil.copytree(tree, place(root, tree), symlinks=True, ignore=LEFT_OUT, dirs_exist_ok=True)
    programs = [shutil.which(name) for name in PROGRAMS]
    programs += found("/usr/lib/gcc/*/*/cc1 /usr/lib/gcc/*/*/collect2")
    programs += found(" ".join(f"/usr/lib/postgresql/*/bin/{name}" for name in ("postgres", "initdb", "pgbench", "pg_isready")))
    for program in filter(None, programs):
        copy(root, program)
        for library in libraries(program):
            copy(root, library)
    for library in found(" ".join(f"/usr/lib/*-linux-gnu/{name}" for name in LINKED.split())):
        copy(root, library)
    for name, path in tools.items():
        shutil.copy2(path, f"{root}/usr/bin/{name}")
        for library in libraries(path):
            copy(root, library)


# What programs use of the kernel's devices.
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}


def make_devices(at):
    """Devices of its own: whatever happens to them, those of the host stay."""
    for name, (major, minor) in DEVICES.items():
        os.mknod(f"{at}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.chmod(f"{at}/{name}", 0o666)
    for name, target in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        os.symlink(f"/proc/self/fd{target}", f"{at}/{name}")
    os.mkdir(f"{at}/shm")
    os.chmod(f"{at}/shm", 0o1777)


@contextlib.contextmanager
def connected(root):
    """With the kernel's file systems, among them those of control groups, which say what limits a process. Nothing of the
    host's can be changed there."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mounted(f"{root}/proc", "-t", "proc", "hbench"))
        stack.enter_context(mounted(f"{root}/sys", "--rbind", "/sys"))
        # Otherwise its end would unmount the originals, too.
        run("mount", "--make-rprivate", f"{root}/sys")
        for point in below(f"{root}/sys"):
            run("mount", "-o", "remount,bind,ro", point)
        stack.enter_context(mounted(f"{root}/dev", "-t", "tmpfs", "-o", "mode=755", "hbench"))
        make_devices(f"{root}/dev")
        yield root

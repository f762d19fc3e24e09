# SPDX-License-Identifier: MIT OR Apache-2.0
"""The package's interface. Times are in nanoseconds; None means "not measured" or "not known"."""

from types import TracebackType
from typing import Any, Literal, Optional, Union, final

HISTORY_MAX: int
"""How many records are kept for one thread."""

# Bits of Last.flags and Record.flags.
RESTARTED: int
"""Part of a call that the kernel restarts after a signal."""
PARTIAL: int
"""The call began before monitoring did: start_ns is a lower bound."""
USER_TAP: int
"""Stamps were taken in user space: outside_ns is meaningful."""
NESTED: int
"""Made by a signal handler inside another call."""

class Error(Exception):
    """The base class of all exceptions of DeBox."""

class PrivilegeError(Error):
    """The process may not load probes, and no broker serves it; the text says what is needed."""

class UnsupportedError(Error):
    """The kernel lacks what the probes need."""

class AlreadyEnabledError(Error):
    """This process has enabled DeBox already."""

class NotEnabledError(Error):
    """This process has not enabled DeBox, or has closed its file descriptors since."""

class NotMonitoredError(Error):
    """This thread has no records: more than max_threads threads are running."""

class NoSuchThreadError(Error):
    """No thread of that id is monitored."""

class ArgumentError(Error):
    """An argument is out of its range."""

class SystemRefusedError(Error):
    """The operating system refused something; the text says what."""

class WrongThreadError(Error):
    """A scope was ended on another thread than it began on."""

class InterruptedError(Error):
    """Monitoring ended or restarted inside a scope. Scopes do not raise it: see Scope.why."""

class StaleError(Error):
    """The record has been overwritten by a later call of its thread."""

def enable(
    *,
    max_threads: int = 1024,
    sleeps: bool = True,
    irq: bool = False,
    cpu: bool = False,
    tap: Optional[Literal["kernel", "user"]] = None,
) -> None:
    """Loads the probes and starts monitoring this process: all its threads, and from then on new
    threads and children.

    Needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE), or a running `debox broker`. Takes some
    tenths of a second, with a broker milliseconds. Under `debox run --tap user` it joins that session.

    max_threads: threads, of this process and its children, at the same time; 17 KB of memory each.
    sleeps: where calls sleep and who wakes them; budgets are measured without it, too.
    irq: measures interrupts separately from CPU time.
    cpu: who had the CPU that calls waited for (throttled_ns, cpu_owner). Not with a broker, nor with
      a user tap. Every context switch on the machine then takes longer, as it notes who had the CPU.
    tap: "kernel" sees every call. "user" (outside of `debox run --tap user`) sees none of Python's
      calls and adds no cost to them: there are no records, but scopes have all times of the thread.

    Without a broker about 90 descriptors, 115 with irq, stay open (BPF maps, programs, links and types, and an epoll
    instance), with a broker two (a socket and a map). All have close-on-exec. Code that closes descriptors
    it does not know, such as os.closerange(3, 65536) in a daemon, ends monitoring: then scopes are
    unmeasured, last() is None, other functions raise NotEnabledError, and enable() begins a new session.

    Raises PrivilegeError, UnsupportedError, AlreadyEnabledError, ArgumentError, SystemRefusedError.
    """

def disable() -> None:
    """Ends monitoring and takes the probes out of the kernel. Raises NotEnabledError."""

def is_enabled() -> bool:
    """Whether this process has enabled DeBox."""

def last(*, interpreter: bool = False) -> Optional[Last]:
    """The record of this thread's last call, read in place: makes no call, copies nothing.

    None before the first call, while DeBox is not enabled, and on a thread that is not monitored.

    Threads hand each other the interpreter's lock (the GIL) with futex calls. Those are skipped: the
    last call is the last one that the program made. If all records that are left are such calls, the
    result is None. `interpreter=True` shows them.

    A Python function may make several calls: open() ends with an lseek or fstat.
    """

def history(n: int = ..., *, tid: Optional[int] = None, interpreter: bool = False) -> list[Record]:
    """Copies of this thread's last calls, the newest first, at most n of HISTORY_MAX; or those of the
    monitored thread `tid` (threading.get_native_id()).

    Raises NotEnabledError, NotMonitoredError, NoSuchThreadError.
    """

def explain(record: Union[Last, Record], index: Optional[int] = None) -> list[Explanation]:
    """Explains the sleeps of a record, or the one with that index. Scopes leave out the time that this
    takes. Raises NotEnabledError, StaleError, ArgumentError, SystemRefusedError."""

def pause() -> None:
    """Stops recording this thread's calls. Scopes go on. Raises NotEnabledError, NotMonitoredError."""

def resume() -> None:
    """Records this thread's calls again. Raises NotEnabledError, NotMonitoredError."""

def scope(name: str = "", *, faults: bool = False) -> Scope:
    """Sums up what this thread does from here to there, exactly, however many calls it makes:

        with debox.scope("request") as s:
            handle(request)
        log.info("%s %s", s.name, s)

    faults: counts page faults of the program's own code, too, by one getrusage call at each end.

    A scope never disturbs the program: if nothing is measured (DeBox is not enabled, the broker has
    gone, there are too many threads) its sums are None, str() is "unmeasured", and `why` says why.
    Only a scope that is ended on another thread than it began on raises: WrongThreadError.

    Everything that the thread does inside counts. Under asyncio that includes other tasks if there is an
    await inside: put a scope there around code without one, and in a coroutine measure the callback
    that blocks the loop instead of the request. There is no scope that follows a task from one step to
    the next; it would have to be notified of each step.
    """

class _Attributes:
    @property
    def number(self) -> int:
        """Ordinal of the call on this thread, from 1."""
    @property
    def call(self) -> int:
        """The call's number."""
    @property
    def abi(self) -> int:
        """0: x86-64, 1: 32-bit, which has other call numbers."""
    @property
    def name(self) -> str:
        """The call's name, such as "read"."""
    @property
    def ret(self) -> int:
        """As the kernel returned it: -errno on error."""
    @property
    def errno(self) -> Optional[int]:
        """The error, if there was one."""
    @property
    def args(self) -> tuple[int, int, int]:
        """The first argument words."""
    @property
    def flags(self) -> int:
        """RESTARTED, PARTIAL, USER_TAP, NESTED."""
    @property
    def start_ns(self) -> int:
        """On time.monotonic_ns()'s clock."""
    @property
    def wall_ns(self) -> int:
        """From the kernel's entry to its exit: the sum of the parts below."""
    @property
    def cpu_ns(self) -> int:
        """Running, in this call."""
    @property
    def blocked_ns(self) -> int:
        """Asleep: from leaving the CPU to being woken."""
    @property
    def runqueue_ns(self) -> int:
        """Woken up and waiting for a CPU."""
    @property
    def preempted_ns(self) -> int:
        """Pushed off the CPU while it could have run."""
    @property
    def irq_ns(self) -> Optional[int]:
        """Interrupts on top of it; None if not measured: then cpu_ns includes them."""
    @property
    def throttled_ns(self) -> Optional[int]:
        """The part of runqueue_ns and preempted_ns that a control group's CPU quota caused. None if not measured."""
    @property
    def cpu_owner(self) -> Optional[CpuOwner]:
        """Who had the CPU for the largest part of the rest. None if there was no rest, or not measured."""
    @property
    def outside_ns(self) -> int:
        """User tap: inside the stamps but not inside the call."""
    @property
    def faults_minor(self) -> int: ...
    @property
    def faults_major(self) -> int: ...
    @property
    def sleeps(self) -> list[Sleep]:
        """The places where it slept."""
    @property
    def sleeps_lost(self) -> int:
        """Sleeps that did not fit; their time is in blocked_ns all the same."""
    def copy(self) -> Record:
        """A copy that does not change any more."""

@final
class Last(_Attributes):
    """The record of a thread's last call, in the memory to which the kernel writes it. It is valid until
    the thread's eighth call after it; from then on attributes raise StaleError. copy() keeps it."""

@final
class Record(_Attributes):
    """A copy of a record."""

@final
class CpuOwner:
    """A process that had the CPU while a call waited for one. The threads of a process count together."""

    @property
    def kind(self) -> Literal["task", "own", "kernel", "idle", "hidden", "many", "stolen", "unknown"]:
        """task: another process; own: threads of this one; kernel: a kernel thread; idle: the CPU had to be
        woken; hidden: not shown to a broker's client; many: which process had most is not known; stolen:
        the hypervisor."""
    @property
    def name(self) -> Optional[str]: ...
    @property
    def pid(self) -> Optional[int]: ...
    @property
    def ns(self) -> int:
        """For how much of this call's wait it had the CPU."""

@final
class Sleep:
    """One place where a call slept; sleeps at the same place are one entry."""

    count: int
    blocked_ns: int
    longest_ns: int
    site: int
    stack: int
    resource: int
    resource_kind: Optional[Literal["fd", "futex", "timer", "lock", "child", "disk"]]
    waiters_entry: int
    waiters_exit: int
    waker: Optional[str]
    """The name of the task that ended the last sleep, "hard interrupt" or "soft interrupt"."""
    waker_tid: Optional[int]
    owner: Optional[str]
    """Who held the resource when the last sleep began."""
    owner_tid: Optional[int]

@final
class Explanation:
    """The meaning of a sleep."""

    label: str
    """The wait's human-readable name: "page read"."""
    wait_class: str
    """idle, disk, lock, memory, cpu, network, process or other."""
    function: str
    """The kernel function that decided to wait."""
    offset: int
    file: Optional[str]
    line: Optional[int]

@final
class Scope:
    """What happened on a thread between two points; see scope(). The sums are available once it has
    ended; each is None if nothing was measured."""

    @property
    def name(self) -> str: ...
    def begin(self) -> None:
        """Begins it, as `with` does."""
    def end(self) -> None:
        """Ends it, as the end of `with` does. Raises WrongThreadError."""
    def so_far(self) -> Scope:
        """The sums so far, as a scope that has ended. Raises WrongThreadError."""
    def __enter__(self) -> Scope: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
        /,
    ) -> bool: ...
    @property
    def measured(self) -> bool: ...
    @property
    def why(self) -> Optional[str]:
        """Why nothing was measured."""
    @property
    def wall_ns(self) -> Optional[int]:
        """All of it: cpu + blocked + runqueue + preempted, + irq if measured."""
    @property
    def cpu_ns(self) -> Optional[int]:
        """Running: cpu_user_ns + cpu_kernel_ns."""
    @property
    def cpu_user_ns(self) -> Optional[int]:
        """Running between calls: Python, and the page faults of its own code."""
    @property
    def cpu_kernel_ns(self) -> Optional[int]:
        """Running in calls. Under a user tap, in the calls that it saw."""
    @property
    def blocked_ns(self) -> Optional[int]:
        """Asleep, in calls and in page faults. Includes waiting for the interpreter's lock."""
    @property
    def blocked_in_calls_ns(self) -> Optional[int]: ...
    @property
    def runqueue_ns(self) -> Optional[int]:
        """Woken up and waiting for a CPU."""
    @property
    def preempted_ns(self) -> Optional[int]:
        """Pushed off the CPU while it could have run."""
    @property
    def irq_ns(self) -> Optional[int]:
        """None if not measured: then cpu_ns includes it."""
    @property
    def calls(self) -> Optional[int]: ...
    @property
    def sleeps(self) -> Optional[int]: ...
    @property
    def faults_minor(self) -> Optional[int]:
        """Page faults taken in calls; with scope(faults=True), all."""
    @property
    def faults_major(self) -> Optional[int]: ...
    @property
    def unseen_ns(self) -> Optional[int]:
        """Time whose use is not known, because the machine hid switches; mostly in cpu_ns."""
    @property
    def unseen(self) -> Optional[int]:
        """Hidden switches that were noticed."""
    @property
    def untapped(self) -> Optional[int]:
        """User tap: calls that could not be stamped."""
    def as_dict(self) -> dict[str, Any]:
        """All sums by name, for structured logs; if nothing was measured, name and why only."""
    def __str__(self) -> str:
        """For a log line: wall=4.10ms cpu=1.30ms blocked=2.75ms runqueue=50.0us preempted=0 calls=12

        Never raises: gives "unmeasured", "not begun", or, for an open scope, "open " and the sums so far."""

# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the package promises. Times are in nanoseconds; None is "not measured" or "not known"."""

from types import TracebackType
from typing import Any, Literal, Optional, Union, final

HISTORY_MAX: int
"""Records that are kept of one thread."""

# Bits of Last.flags and Record.flags.
RESTARTED: int
"""A piece of a call that the kernel restarts after a signal."""
PARTIAL: int
"""The call began before monitoring did: start_ns is a lower bound."""
USER_TAP: int
"""Stamps were taken in user space: outside_ns is meaningful."""
NESTED: int
"""Made by a signal handler inside another call."""

class Error(Exception):
    """What DeBox could not do; all of its exceptions are of this class."""

class PrivilegeError(Error):
    """The process may not load probes, and no broker serves it; the text says what it takes."""

class UnsupportedError(Error):
    """The kernel lacks what the probes need."""

class AlreadyEnabledError(Error):
    """This process has enabled DeBox already."""

class NotEnabledError(Error):
    """This process has not enabled DeBox, or has closed its file descriptors since."""

class NotMonitoredError(Error):
    """This thread has no records: more threads run than max_threads made room for."""

class NoSuchThreadError(Error):
    """No thread of that id is monitored."""

class ArgumentError(Error):
    """An argument is out of its range."""

class SystemRefusedError(Error):
    """The operating system refused something; the text says what."""

class WrongThreadError(Error):
    """A scope was ended on another thread than it began on."""

class InterruptedError(Error):
    """Monitoring ended, or began anew, inside a scope. Scopes do not raise it: see Scope.why."""

class StaleError(Error):
    """The place of the record has been taken by a later call of its thread."""

def enable(
    *,
    max_threads: int = 1024,
    sleeps: bool = True,
    irq: bool = False,
    cpu: bool = False,
    tap: Optional[Literal["kernel", "user"]] = None,
) -> None:
    """Loads the probes and brings this process under monitoring: all its threads, and from then on new
    threads and children.

    Needs root (or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE), or a running `debox broker`. Takes some
    tenths of a second, with a broker milliseconds. Under `debox run --tap user` it joins that session.

    max_threads: threads, of this process and its children, at the same time; 17 KB of memory each.
    sleeps: where calls sleep and who wakes them; budgets are there without it.
    irq: measures interrupts apart from CPU time.
    cpu: who had the CPU that calls waited for (throttled_ns, cpu_owner). Not through a broker, nor with
      a user tap. Each switch of every process on the machine then takes longer, as it notes who had the CPU.
    tap: "kernel" sees every call. "user" (outside of `debox run --tap user`) sees none of Python's
      calls and costs them nothing: there are no records, but scopes have all times of the thread.

    Without a broker about 85 descriptors stay open (BPF maps, programs, links and types, and an epoll
    instance), with one two (a socket and a map); all are closed in programs that are executed. Code that
    closes descriptors it does not know, such as os.closerange(3, 65536) in a daemon, ends monitoring: scopes
    are unmeasured then, last() is None, other functions raise NotEnabledError, and enable() begins anew.

    Raises PrivilegeError, UnsupportedError, AlreadyEnabledError, ArgumentError, SystemRefusedError.
    """

def disable() -> None:
    """Ends monitoring and takes the probes out of the kernel. Raises NotEnabledError."""

def is_enabled() -> bool:
    """Whether this process has enabled DeBox."""

def last(*, interpreter: bool = False) -> Optional[Last]:
    """This thread's last call, read in place: makes no call, copies nothing.

    None: before the first call, while nothing is enabled, on a thread that is not monitored.

    Threads hand each other the interpreter's lock (the GIL) with futex calls. Those are passed over:
    the last call is the one that the program made. If all records that are left are such calls, the
    result is None. `interpreter=True` shows them.

    One function of Python's may make several calls: open() ends with an lseek or fstat.
    """

def history(n: int = ..., *, tid: Optional[int] = None, interpreter: bool = False) -> list[Record]:
    """Copies of this thread's last calls, the newest first, at most n of HISTORY_MAX; or those of the
    monitored thread `tid` (threading.get_native_id()).

    Raises NotEnabledError, NotMonitoredError, NoSuchThreadError.
    """

def explain(record: Union[Last, Record], index: Optional[int] = None) -> list[Explanation]:
    """What the sleeps of a record mean, or the one of that index. Scopes leave out what this
    does. Raises NotEnabledError, StaleError, ArgumentError, SystemRefusedError."""

def pause() -> None:
    """No records of this thread's calls. Scopes go on. Raises NotEnabledError, NotMonitoredError."""

def resume() -> None:
    """Records again. Raises NotEnabledError, NotMonitoredError."""

def scope(name: str = "", *, faults: bool = False) -> Scope:
    """Sums up what this thread does from here to there, exactly, however many calls it makes:

        with debox.scope("request") as s:
            handle(request)
        log.info("%s %s", s.name, s)

    faults: counts page faults of the program's own code, too, by one getrusage call at each end.

    A scope never gets in the way of the program: if nothing is measured - DeBox is not enabled, the
    broker has gone, too many threads - its sums are None, str() is "unmeasured", and `why` says why.
    Only a scope that is ended on another thread than it began on raises: WrongThreadError.

    All that the thread does inside counts. Under asyncio that is other tasks, too, as soon as there is
    an await inside: put a scope there around code without one, and in a coroutine look at the callback
    that blocks the loop instead of at the request. A scope that followed a task from one step to the
    next would have to be told of each step; it does not exist.
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
        """0: x86-64, 1: 32-bit, whose numbers are others."""
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
        """Interrupts on top of it; None if not measured: then inside cpu_ns."""
    @property
    def throttled_ns(self) -> Optional[int]:
        """Of runqueue_ns and preempted_ns: a control group's CPU quota was used up. None if not measured."""
    @property
    def cpu_owner(self) -> Optional[CpuHolder]:
        """Who had the CPU for the largest part of the rest. None if there was none, or not measured."""
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
        """A copy that stays as it is."""

@final
class Last(_Attributes):
    """The record of a thread's last call, in the memory that the kernel writes it to. It holds until the
    thread's eighth call after it; from then on attributes raise StaleError. copy() keeps it."""

@final
class Record(_Attributes):
    """A record that was copied."""

@final
class CpuHolder:
    """A process that had the CPU while a call waited for one. Processes count as a whole."""

    @property
    def kind(self) -> Literal["task", "own", "kernel", "idle", "hidden", "many", "stolen", "unknown"]:
        """task: another process; own: threads of this one; idle: the CPU had to be woken; hidden: not
        shown to a broker's client; many: which process had most is not known; stolen: the hypervisor."""
    @property
    def name(self) -> Optional[str]: ...
    @property
    def pid(self) -> Optional[int]: ...
    @property
    def ns(self) -> int:
        """How long it had the CPU, of this call's wait."""

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
    """What a sleep means."""

    label: str
    """What a person would call the wait: "page read"."""
    wait_class: str
    """idle, disk, lock, memory, cpu, network, process or other."""
    function: str
    """The kernel function that decided to wait."""
    offset: int
    file: Optional[str]
    line: Optional[int]

@final
class Scope:
    """What happened on a thread between two points; see scope(). The sums are there when it has ended;
    each is None if nothing was measured."""

    @property
    def name(self) -> str: ...
    def begin(self) -> None:
        """Begins it, as `with` does."""
    def end(self) -> None:
        """Ends it, as the end of `with` does. Raises WrongThreadError."""
    def so_far(self) -> Scope:
        """The sums until now, as a scope that has ended. Raises WrongThreadError."""
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
        """Running in calls. Under a user tap, in those that it saw."""
    @property
    def blocked_ns(self) -> Optional[int]:
        """Asleep, in calls and in page faults. Waiting for the interpreter's lock is in it."""
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
        """None if not measured: then inside cpu_ns."""
    @property
    def calls(self) -> Optional[int]: ...
    @property
    def sleeps(self) -> Optional[int]: ...
    @property
    def faults_minor(self) -> Optional[int]:
        """Taken in calls; with scope(faults=True), all."""
    @property
    def faults_major(self) -> Optional[int]: ...
    @property
    def unseen_ns(self) -> Optional[int]:
        """Time of which it is not known what it was, as the machine hid switches; mostly in cpu_ns."""
    @property
    def unseen(self) -> Optional[int]:
        """Such switches, as far as they were noticed."""
    @property
    def untapped(self) -> Optional[int]:
        """User tap: calls that could not be stamped."""
    def as_dict(self) -> dict[str, Any]:
        """All of this by name, for structured logs; if nothing was measured, name and why."""
    def __str__(self) -> str:
        """For a log line: wall=4.10ms cpu=1.30ms blocked=2.75ms runqueue=50.0us preempted=0 calls=12

        Never raises: "unmeasured", "not begun", or of an open one "open " and the sums until now."""

"""A process that is measured: pinned, in a session of its own, and dead when the driver is."""
import ctypes
import glob
import os
import platform
import resource
import signal
import struct
import subprocess

from .failure import Failure

# That a server may take until it listens.
START_SECONDS = 30
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def cpus():
    """The CPU of the client and the CPU of the servers."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise Failure("only one CPU may be used: client and server need one each; run this on a machine with two or more")
    return allowed[0], allowed[1]


def raise_descriptors():
    """To what this user may have, which whoever is started inherits; how many that is."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


# sched_setattr(2), by the machine.
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
# The longest that Linux grants, from 6.12 on.
SLICE_NANOSECONDS = 100_000_000


def run_as_batch():
    """Preempts no other, and is preempted only after a long slice: a client is not stopped between a connect and what it asks then."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if SCHED_SETATTR is not None:
        size, flags, nice, priority, deadline, period = 48, 0, 0, 0, 0, 0
        fields = (size, os.SCHED_BATCH, flags, nice, priority, SLICE_NANOSECONDS, deadline, period)
        # Older kernels grant no slice of one's own: then it has the usual one.
        LIBC.syscall(SCHED_SETATTR, 0, struct.pack("=IIQiIQQQ", *fields), 0)


def own(cpu, batch=False):
    """What subprocess is told of it. On that CPU; None leaves it to the scheduler. A batch process preempts no other."""
    parent = os.getpid()

    def prepare():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        if batch:
            run_as_batch()

    return {"start_new_session": True, "preexec_fn": prepare}


def spawn(argv, cpu, batch=False, **streams):
    return subprocess.Popen(argv, **own(cpu, batch), **streams)


def read(path):
    """What a file of /proc says, nothing if what it is about has ended meanwhile."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def of_threads(pid, name):
    """What that file says of each thread."""
    return [read(path) for path in glob.glob(f"/proc/{pid}/task/*/{name}")]


def tree(pid):
    """The process, then all below it."""
    found, new = [], [pid]
    while new:
        pid = new.pop()
        found.append(pid)
        new += [int(child) for children in of_threads(pid, "children") for child in children.split()]
    return found


def end(process):
    """With its tree: what made a session of its own is in there too. Who replaces processes that die goes first."""
    for pid in tree(process.pid) if process.poll() is None else []:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    process.wait()

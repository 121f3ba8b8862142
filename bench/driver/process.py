"""A process that is measured: pinned, in a session of its own, and dead when the driver is."""
import ctypes
import glob
import os
import resource
import signal
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
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

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

"""A peer's server, and what it uses."""
import os
import socket
import subprocess
import time

from .failure import Failure, PeerFailure
from .paths import LOGS, relative
from .process import START_SECONDS, cpus, end, of_threads, read, spawn, tree

# Below the ports that the kernel gives to clients, so that none of those can be in the way. Two runs at once seldom begin at the same.
PORTS = iter(range(19000 + os.getpid() % 100 * 100, 32000))


def free_port():
    for port in PORTS:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Failure("no port below 32000 is free: end what listens there")


def ended_too(pid):
    """CPU seconds of a process with all the threads it had and the children it has reaped."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, peer, row, command=None, pinned=True):
        self.peer, self.port = peer, free_port()
        os.makedirs(LOGS, exist_ok=True)
        self.log = os.path.join(LOGS, f"{peer.name}-{row.name}.log")
        argv = (command or peer.command)(row.server, self.port, row)
        with open(self.log, "wb") as log:
            try:
                self.process = spawn(argv, cpus()[1] if pinned else None, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            except OSError as error:
                raise PeerFailure(f"{peer.name} does not start: {argv[0]}: {error.strerror}") from error
        try:
            self.wait_until_it_listens()
        except BaseException:
            self.stop()
            raise

    def wait_until_it_listens(self):
        last = time.monotonic() + START_SECONDS
        while time.monotonic() < last:
            if self.process.poll() is not None:
                raise PeerFailure(f"{self.peer.name} does not listen on port {self.port}{self.told()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise PeerFailure(f"{self.peer.name} does not listen on port {self.port} after {START_SECONDS} s{self.told()}")

    def told(self):
        """How it ended, if it did, the last line of its log, which most servers give their reason in, and where the log is."""
        code = self.process.poll()
        ended = "" if code is None else f"; it ended by signal {-code}" if code < 0 else f"; it ended with {code}"
        with open(self.log, errors="replace") as log:
            lines = log.read().strip().splitlines()
        return ended + (f": {lines[-1][:200]}; see {relative(self.log)}" if lines else f"; {relative(self.log)} is empty")

    def cpu_seconds(self, row):
        """User and system: of its threads in the nanoseconds of the scheduler; of threads and children that ended in ticks."""
        if row.model:
            return sum(map(ended_too, tree(self.process.pid)))
        ran = [schedstat.split() for pid in tree(self.process.pid) for schedstat in of_threads(pid, "schedstat")]
        return sum(int(fields[0]) for fields in ran if fields) / 1e9

    def memory(self):
        """Its user memory in bytes: proportional set size, so that nothing is counted twice."""
        lines = [line for pid in tree(self.process.pid) for line in read(f"/proc/{pid}/smaps_rollup").splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024

    def stop(self):
        end(self.process)

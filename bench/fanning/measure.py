"""A broker, its client, and what both used between the first line that is published and the last that is delivered."""
import glob
import json
import os
import select
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

from driver.failure import PeerFailure
from driver.paths import BUILD, BENCH
from driver.peers import run
from driver.process import cpus, read, spawn, tree
from driver.server import Server

from .brokers import protocol

CLIENT = os.path.join(BUILD, "fanout-client")
PAGE = os.sysconf("SC_PAGE_SIZE")
INTERVAL_US = 1_000
# That subscribing may take, and that a run may take beyond its lines: a broker that is four times too slow still gets done.
SUBSCRIBE_SECONDS, SPARE_SECONDS, TIMES = 120, 60, 4
SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Shape:
    mode: str
    subscribers: int
    lines: int
    interval_us: int
    stalled: int

    def limit(self):
        return int(SPARE_SECONDS + TIMES * self.lines * self.interval_us / 1e6)

    def title(self):
        how = f"1 line/ms for {self.lines / 1e3:g} s" if self.interval_us else f"{self.lines:,} lines in one go"
        return f"{self.mode}: {how} to {self.subscribers:,} subscribers" + (f", {self.stalled:,} of them stalled" if self.stalled else "")


def build_client():
    os.makedirs(BUILD, exist_ok=True)
    run("fanout-client", ["cc", "-O2", "-pthread", "-o", CLIENT, os.path.join("fanning", "client.c")], BENCH)


def resident(pid):
    return sum(int(fields[1]) * PAGE for fields in (read(f"/proc/{each}/statm").split() for each in tree(pid)) if fields)


def descriptors(pid):
    return sum(len(glob.glob(f"/proc/{each}/fd/*")) for each in tree(pid))


class Watch(threading.Thread):
    """The most memory that a broker has had; one that takes more than it may is ended, before the machine does it to another."""

    def __init__(self, pid, most):
        super().__init__(daemon=True)
        self.pid, self.most, self.peak, self.ended = pid, most, resident(pid), False
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, resident(self.pid))
            if self.peak > self.most and not self.ended:
                self.ended = True
                os.kill(self.pid, signal.SIGKILL)

    def stop(self):
        self.over.set()
        self.join()
        return max(self.peak, resident(self.pid))


class Client:
    def __init__(self, server, shape, pinned):
        self.server = server
        argv = [CLIENT, protocol(server.peer), server.port, shape.subscribers, shape.stalled, shape.lines, shape.interval_us, shape.limit()]
        self.process = spawn([str(word) for word in argv], cpus()[0] if pinned else None, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def line(self, seconds):
        """Its next line, which it writes at once."""
        line = b""
        if select.select([self.process.stdout], [], [], seconds)[0]:
            line = self.process.stdout.readline()
        if not line:
            self.process.kill()
            said = self.process.communicate()[1].decode(errors="replace").strip() or f"nothing within {seconds} s"
            raise PeerFailure(f"{self.server.peer.name}: the client says {said}{self.server.told()}")
        return line


def measured(peer, shape, options):
    """One run with a broker of its own, so that nothing of the last one is left."""
    row = SimpleNamespace(name="fanout", server=protocol(peer), model=None)
    server = Server(peer, row, pinned=not options.no_pin)
    try:
        with Client(server, shape, not options.no_pin) as client:
            client.line(SUBSCRIBE_SECONDS)
            time.sleep(0.2)  # what the broker does a little later
            pid = server.process.pid
            cpu, memory, open_files = server.cpu_seconds(row), resident(pid), descriptors(pid)
            watch = Watch(pid, options.memory_limit << 30)
            watch.start()
            client.process.stdin.write(b"go\n")
            try:
                result = json.loads(client.line(shape.limit() + SPARE_SECONDS))
                spent = server.cpu_seconds(row) - cpu
            finally:
                peak = watch.stop()
            alive = server.process.poll() is None
            return {**result, "server_cpu_seconds": spent if alive else None, "memory_bytes": memory, "grown_bytes": peak - memory,
                    "cpu_ns": spent * 1e9 / result["delivered"] if alive and result["delivered"] else None,
                    "closed_by_server": open_files - descriptors(pid) if alive else open_files, "over_memory": watch.ended, "alive": alive}
    finally:
        server.stop()

"""Rounds: each server once in each, one after the other, so that a machine that changes changes for all."""
import json
import statistics
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from driver.failure import PeerFailure
from driver.process import cpus, spawn
from driver.program import line_within
from driver.server import Server
from fanning.measure import Watch, resident
from sealing.measure import spread, summary

from .servers import CHAIN, program

SECONDS = 300
# A server that takes more memory is ended.
MEMORY = 8 << 30


@dataclass(frozen=True)
class Row:
    name: str
    work: str  # what --only names
    server: str  # what the servers do, and the client
    layer: str
    title: str
    unit: str
    connections: int  # or fewer, if the run is a quick one
    count: int  # of messages that the client sends
    quick: int
    batch: int = 1  # messages to all that are sent at once
    model: str = ""

    def is_idle(self):
        return self.work == "idle"

    def is_room(self):
        return self.server == "room"


ROWS = (
    Row("idle", "idle", "echo", "plain", "Idle connections that have echoed once", "bytes", 10_000, 0, 0),
    Row("idle-tls", "idle", "echo", "tls", "Idle connections of TLS that have echoed once", "bytes", 10_000, 0, 0),
    Row("echo-64", "echo", "echo", "plain", "Echo of 64 bytes, 64 connections", "ns", 64, 400_000, 100_000),
    Row("echo-512", "echo", "echo", "plain", "Echo of 64 bytes, 512 connections", "ns", 512, 400_000, 100_000),
    Row("echo-tls", "echo", "echo", "tls", "Echo of 64 bytes, TLS, 64 connections", "ns", 64, 300_000, 50_000),
    Row("fanout", "fanout", "room", "plain", "100 messages to 10,000, one after the other", "ns", 10_000, 100, 20),
    Row("burst", "burst", "room", "plain", "1,000 messages to 10,000, all at once", "ns", 10_000, 1_000, 1_000, 1_000),
)
WORK = tuple(dict.fromkeys(row.work for row in ROWS))


class Client:
    def __init__(self, server, row, connections, count):
        self.server = server
        argv = [program("client"), row.server, server.port, row.layer, CHAIN, connections, count, row.batch]
        self.process = spawn([str(word) for word in argv], cpus()[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def line(self):
        line = line_within(self.process.stdout, SECONDS)
        if not line.endswith("\n"):
            self.process.kill()
            said = self.process.communicate()[1].decode(errors="replace").strip()[-300:] or f"nothing within {SECONDS} s"
            raise PeerFailure(f"{self.server.peer.name}: the client says {said}{self.server.told()}")
        return line

    def run(self):
        self.process.stdin.write(b"go\n")
        return json.loads(self.line())


@contextmanager
def connected(server, row, connections, count):
    """A client whose connections have had an answer each."""
    client = Client(server, row, connections, count)
    try:
        client.line()
        yield client
    finally:
        client.process.kill()
        client.process.communicate()


def loaded(server, row, connections, count):
    """CPU of the server for a message that is delivered, in ns, and the share of the time in which it had something to do."""
    with connected(server, row, connections, count) as client:
        time.sleep(0.2)  # what the server does a little later
        pid = server.process.pid
        before, memory = server.cpu_seconds(row), resident(pid)
        watch = Watch(pid, MEMORY)
        watch.start()
        try:
            result = client.run()
            spent = server.cpu_seconds(row) - before
        finally:
            grown = watch.stop() - memory
        return {"cost": spent * 1e9 / result["done"], "busy": spent / result["seconds"], "grown": grown, "done": result["done"]}


@contextmanager
def serving(kind, row, command=None):
    server = Server(kind, row, command)
    try:
        yield server
    finally:
        server.stop()


def idle(kind, row, connections):
    """The user memory of a server of its own for each of the connections that rest, above one that has had some."""
    def settled(server):
        with connected(server, row, 4, 0):
            pass
        time.sleep(0.3)
        return server.memory()

    base = None
    if kind.idle_base:
        with serving(kind, row, kind.idle_base) as server:
            base = settled(server)
    with serving(kind, row) as server:
        before = settled(server)
        with connected(server, row, connections, 0):
            time.sleep(0.5)  # what the server frees a little later
            return {"cost": (server.memory() - (before if base is None else base)) / connections}


def room(kind, row, connections, count):
    """Of a server of its own: what one keeps of a run is not to be taken for what the next needs."""
    with serving(kind, row) as server:
        return loaded(server, row, connections, count)


class Measurement:
    """A row: its servers, and what came of them."""

    def __init__(self, row, kinds, options, say):
        self.row, self.kinds, self.options, self.say = row, list(kinds), options, say
        self.count = row.quick if options.quick else row.count
        self.connections = min(row.connections, options.connections)
        self.rounds = {kind.name: [] for kind in kinds}
        self.servers, self.failures = {}, {}

    def each(self, step, turn=0):
        """Every server once. What one fails at is said, and the others go on without it."""
        turn %= max(len(self.kinds), 1)
        for kind in self.kinds[turn:] + self.kinds[:turn]:
            try:
                step(kind)
            except PeerFailure as failure:
                self.say(f"{failure}; {kind.name} is left out of this row")
                self.failures[kind.name] = str(failure)
                self.rounds.pop(kind.name)
                self.kinds.remove(kind)

    def start(self, stack):
        def step(kind):
            server = self.servers[kind.name] = stack.enter_context(serving(kind, self.row))
            # What compiles while it runs has done so.
            loaded(server, self.row, self.connections, max(self.count // 4, self.connections))
        return step

    def measured(self, kind):
        if self.row.is_idle():
            figure = idle(kind, self.row, self.connections)
        elif self.row.is_room():
            figure = room(kind, self.row, self.connections, self.count)
        else:
            figure = loaded(self.servers[kind.name], self.row, self.connections, self.count)
        self.rounds[kind.name].append(figure)

    def run(self):
        rounds = min(self.options.rounds, 3) if self.row.is_idle() or self.row.is_room() else self.options.rounds
        with ExitStack() as stack:
            if not self.row.is_idle() and not self.row.is_room():
                self.each(self.start(stack))
            for number in range(rounds):
                self.say(f"{self.row.title}: round {number + 1} of {rounds}")
                self.each(self.measured, number)
        found = summary({name: [figure["cost"] for figure in figures] for name, figures in self.rounds.items()})
        for name, figures in self.rounds.items():
            if not self.row.is_idle():
                found[name]["busy"] = statistics.median(figure["busy"] for figure in figures)
                found[name]["grown"] = spread([figure["grown"] for figure in figures])
                found[name]["done"] = figures[-1]["done"]
        return {"name": self.row.name, "title": self.row.title, "unit": self.row.unit, "count": self.count, "servers": found,
                "failures": self.failures}

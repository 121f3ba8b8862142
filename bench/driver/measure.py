"""Rounds: each server of a row once per round, and the floor before and after each, so that a machine that changes changes for all."""
import json
import os
import statistics
import subprocess
import time

from .conformance import check
from .failure import Failure, PeerFailure
from .paths import BUILD
from .process import cpus, spawn
from .server import Server

IDLE_HOLD_SECONDS = 120


class Client:
    """The load, which checks every answer and counts."""

    def __init__(self, server, row, seconds):
        self.server = server
        argv = [os.path.join(BUILD, "client"), row.client, str(server.port), str(row.connections), str(seconds)]
        self.process = spawn(argv, cpus()[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def failed(self, line):
        self.process.kill()
        rest, complaint = self.process.communicate()
        said = " ".join((line + rest + complaint).split())[-300:] or "nothing"
        return PeerFailure(f"{self.server.peer.name} failed under load: the client says {said}{self.server.told()}")


def loaded(server, row, seconds):
    """One round under load."""
    before = server.cpu_seconds(row)
    with Client(server, row, seconds) as client:
        line = client.process.stdout.readline()
        client.process.wait()
        # What the kernel still does for the connections of this client is the server's too.
        time.sleep(0.05)
        spent = server.cpu_seconds(row) - before
        try:
            result = json.loads(line)
        except ValueError:
            raise client.failed(line) from None
        if client.process.returncode or not result.get("ops"):
            raise client.failed(line)
    if spent <= 0:
        raise PeerFailure(f"{server.peer.name} used no CPU time that could be told in {seconds} s: ask for more --seconds")
    return {"cost": spent * 1e6 / result["ops"], "rate": result["rate"], "p99_us": result.get("p99us")}


def idle(peer, row):
    """One round of a server of its own: what a connection that has said one thing leaves in user memory."""
    base = None
    if peer.idle_base:
        base = touched(peer, row, peer.idle_base, lambda bare: bare.memory())
    return touched(peer, row, peer.command, lambda server: grown(server, row, base))


def touched(peer, row, command, then):
    """Starts a server that has answered once, so that what is loaded by need is there, and ends it."""
    server = Server(peer, row, command)
    try:
        # One that has settled may let go of what only its start needed, with some of what it serves with: it is asked afterwards.
        time.sleep(0.2)
        check(server, row)
        time.sleep(0.2)
        return then(server)
    finally:
        server.stop()


def grown(server, row, base):
    before = server.memory() if base is None else base
    with Client(server, row, IDLE_HOLD_SECONDS) as client:
        line = client.process.stdout.readline()
        if line != f"READY {row.connections}\n":
            raise client.failed(line)
        time.sleep(0.5)  # what the server frees a little later
        return {"cost": (server.memory() - before) / row.connections, "rate": None, "p99_us": None}


def spread(values):
    values = [value for value in values if value is not None]
    if not values:
        return None
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def summary(row, rounds):
    """What the rounds of all servers say, each as min, median and max; the ratio is that of each to the floor's around it."""
    result = {}
    for name, figures in rounds.items():
        result[name] = {key: spread([figure[key] for figure in figures]) for key in ("cost", "rate", "p99_us")}
        result[name]["ratio"] = None if row.idle else spread([figure["cost"] / figure["floor"] for figure in figures])
        result[name]["rounds"] = figures
    return result


class Measurement:
    """One row: its servers, and what came of them so far."""

    def __init__(self, row, peers, options, say):
        self.row, self.options, self.say = row, options, say
        self.peers = [peer for peer in peers if not (row.idle and peer.name == "again") and (peer.models or not row.model)]
        self.servers = {}
        self.rounds = {peer.name: [] for peer in self.peers}
        self.failures = []

    def drop(self, peer, failure):
        if peer.name == "floor":
            raise Failure(str(failure))
        self.say(f"{failure}; {peer.name} is left out of this row")
        self.failures.append({"row": self.row.name, "peer": peer.name, "why": str(failure)})
        self.rounds.pop(peer.name, None)
        self.peers = [other for other in self.peers if other is not peer]
        server = self.servers.pop(peer.name, None)
        if server:
            server.stop()

    def each(self, step, turn=0):
        """Every server once; each round begins with another one."""
        turn %= len(self.peers)
        for peer in self.peers[turn:] + self.peers[:turn]:
            try:
                step(peer)
            except PeerFailure as failure:
                self.drop(peer, failure)

    def start(self, peer):
        server = self.servers[peer.name] = Server(peer, self.row)
        check(server, self.row)

    def warm_up(self, peer):
        asked = self.options.seconds
        wanted = min(peer.warm_up, 10 * asked) if self.options.quick else peer.warm_up
        loaded(self.servers[peer.name], self.row, max(asked, wanted))

    def loaded(self, name):
        return loaded(self.servers[name], self.row, self.options.seconds)

    def floor(self):
        try:
            figure = self.loaded("floor")
        except PeerFailure as failure:
            # Not the failure of the server that is measured beside it.
            self.drop(self.servers["floor"].peer, failure)
        self.rounds["floor"].append({**figure, "floor": figure["cost"]})
        return figure["cost"]

    def measured(self, peer):
        """Between two measurements of the floor: who else uses the machine slows it down for seconds, and all three alike."""
        if self.row.idle:
            self.rounds[peer.name].append(idle(peer, self.row))
        elif peer.name != "floor":
            figure, before = self.loaded(peer.name), self.rounds["floor"][-1]["cost"]
            self.rounds[peer.name].append({**figure, "floor": (before + self.floor()) / 2})

    def run(self):
        try:
            if not self.row.idle:
                self.each(self.start)
                self.say(f"{self.row.title}: {len(self.peers)} servers answer as they must")
                if not self.options.check:
                    self.each(self.warm_up)
            for number in range(self.options.rounds):
                self.say(f"{self.row.title}: round {number + 1} of {self.options.rounds}")
                if not self.row.idle:
                    self.floor()
                self.each(self.measured, number)
        finally:
            for server in self.servers.values():
                server.stop()
        return summary(self.row, self.rounds)

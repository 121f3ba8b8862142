"""Rounds: each server once in each, one after the other, so that a machine that changes changes for all."""
import json
import statistics
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass

from driver.failure import PeerFailure
from driver.process import cpus, own, spawn
from driver.program import line_within
from driver.server import Server

from .servers import CHAIN, program

SECONDS = 150


@dataclass(frozen=True)
class Row:
    name: str  # what --only names, and what the client is asked for
    server: str  # what the servers do
    title: str
    unit: str
    connections: int
    count: int  # of what the client counts
    quick: int
    per: float  # of those in one unit of the cost, which is that of CPU in µs
    rate: str  # what a CPU second of the server does
    http: bool = False  # a server of HTTP does it too
    model: str = ""


ROWS = (
    Row("idle", "echo", "Idle connections that have echoed once", "bytes", 10_000, 10_000, 1_000, 1, "", True),
    Row("full", "echo", "Full handshake, 64 bytes, goodbye", "µs", 4, 800, 400, 1, "handshakes", True),
    Row("resumed", "echo", "Resumed handshake, 64 bytes, goodbye", "µs", 4, 800, 400, 1, "handshakes", True),
    Row("echo", "echo", "Echo of 64 bytes, 64 connections", "µs", 64, 40_000, 20_000, 1, "echoes"),
    Row("sink", "sink", "Bulk to the server, writes of 16 KiB", "µs/MB", 1, 200_000_000, 100_000_000, 1e6, "MB"),
    Row("source", "source", "Bulk from the server, writes of 16 KiB", "µs/MB", 1, 200_000_000, 100_000_000, 1e6, "MB"),
    Row("mirror", "mirror", "Bulk there and back, 64 KiB under way", "µs/MB", 1, 100_000_000, 50_000_000, 1e6, "MB"),
)


def client(server, row, count):
    http = ["http"] if server.peer.http else []
    return [program("client"), row.name, str(server.port), CHAIN, str(min(row.connections, count)), str(count), *http]


def loaded(server, row, count):
    """CPU of the server, in the row's unit."""
    before = server.cpu_seconds(row)
    done = subprocess.run(client(server, row, count), **own(cpus()[0]), capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise PeerFailure(f"{server.peer.name} failed under load: the client says {done.stderr.strip()[-300:]}{server.told()}")
    time.sleep(0.05)  # what the kernel still does for connections that end
    return (server.cpu_seconds(row) - before) * 1e6 * row.per / json.loads(done.stdout)["done"]


def held(kind, row, command, count, base):
    """The user memory of a server of its own with connections that rest, or of one that had one; in bytes for each above `base`."""
    server = Server(kind, row, command)
    try:
        loaded(server, next(row for row in ROWS if row.name == "full"), 4)
        time.sleep(0.2)
        if count == 0:
            return server.memory()
        before = server.memory() if base is None else base
        process = spawn(client(server, row, count), cpus()[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        try:
            line = line_within(process.stdout, SECONDS)
            if line != f"READY {count}\n":
                process.kill()
                raise PeerFailure(f"{kind.name}: the client says {process.communicate()[1].decode().strip()[-300:]}{server.told()}")
            time.sleep(0.5)  # what the server frees a little later
            return (server.memory() - before) / count
        finally:
            process.kill()
            process.communicate()
    finally:
        server.stop()


def idle(kind, row, count):
    base = held(kind, row, kind.idle_base, 0, None) if kind.idle_base else None
    return held(kind, row, kind.command, count, base)


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def summary(rounds):
    """Costs, and the medians of the ratios of each round to those of others."""
    result = {}
    for name, costs in rounds.items():
        ratios = {other: spread([cost / of for cost, of in zip(costs, others, strict=True)]) for other, others in rounds.items()}
        result[name] = {"cost": spread(costs), "ratios": ratios, "rounds": costs}
    return result


def measured(row, kinds, options, say):
    count = row.quick if options.quick else row.count
    kinds = [kind for kind in kinds if row.http or not kind.http]
    rounds = {kind.name: [] for kind in kinds}
    with ExitStack() as stack:
        servers = {}
        for kind in [] if row.name == "idle" else kinds:
            servers[kind.name] = Server(kind, row)
            stack.callback(servers[kind.name].stop)
            loaded(servers[kind.name], row, max(row.connections, count // 10))
        # Memory varies little from round to round.
        for number in range(min(options.rounds, 3) if row.name == "idle" else options.rounds):
            say(f"{row.title}: round {number + 1}")
            turn = number % len(kinds)
            for kind in kinds[turn:] + kinds[:turn]:
                figure = idle(kind, row, count) if row.name == "idle" else loaded(servers[kind.name], row, count)
                rounds[kind.name].append(figure)
    return {"name": row.name, "title": row.title, "unit": row.unit, "rate": row.rate, "count": count, "servers": summary(rounds)}

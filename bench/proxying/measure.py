"""Rounds: each proxy once in each, one after the other, so that a machine that changes changes for all."""
import json
import os
import socket
import statistics
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

from driver.failure import PeerFailure
from driver.paths import BUILD
from driver.process import cpus, own
from driver.server import Server

from .proxies import ROW, behind, echo, spent, used

SECONDS = 150


@dataclass(frozen=True)
class Row:
    name: str  # what --work names, and what the client is asked for
    title: str
    unit: str
    scale: float  # of CPU seconds for one to the unit
    connections: int
    count: int
    quick: int
    rate: str = "requests/s"
    size: float = 1  # of what the rate counts


ROWS = (
    Row("requests", "Request and reply of 64 B, 50 connections", "µs of CPU for a request", 1e6, 50, 200_000, 20_000),
    Row("idle", "Pairs at rest", "bytes of memory for a pair", 1, 1, 3_500, 500, "pairs/s"),
    Row("bulk", "There and back over 4 connections", "s of CPU for 1 GB there and back", 1e9, 4, 1_000_000_000, 100_000_000, "MB/s", 1e6),
    Row("shorts", "Connect, 64 B, answer, close, 50 at once", "µs of CPU for a connection", 1e6, 50, 20_000, 3_000, "connections/s"),
    Row("redis", "redis-benchmark, SET and GET of 64 B, 50 connections", "µs of CPU for a request", 1e6, 50, 200_000, 20_000),
)


def asked(argv, server):
    done = subprocess.run(argv, **own(cpus()[0]), capture_output=True, text=True, timeout=SECONDS)
    if done.returncode or done.stderr.strip():
        raise PeerFailure(f"{server.peer.name} failed under load: {os.path.basename(argv[0])} ended with {done.returncode} and says "
                          f"{' '.join((done.stderr or done.stdout).split())[-300:] or 'nothing'}{server.told()}")
    return done.stdout


def checked_load(server, row, count):
    """Our client: it checks each byte. How many units of work were done."""
    argv = [os.path.join(BUILD, "proxying-client"), row.name, str(server.port), str(row.connections), str(count)]
    return json.loads(asked(argv, server))["done"]


def calls(port):
    """How many SET and GET a redis has answered."""
    with socket.create_connection(("127.0.0.1", port), 5) as redis, redis.makefile("rb") as answers:
        redis.sendall(b"INFO commandstats\r\n")
        stats = answers.read(int(answers.readline()[1:])).decode()
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in stats.splitlines() if line.startswith(("cmdstat_set:", "cmdstat_get:")))


def redis_load(server, row, count):
    """It ends at an error, but looks at no byte of a value; that redis has answered as many as were asked is checked here."""
    before = calls(server.port)
    asked(["redis-benchmark", "-p", str(server.port), "-c", str(row.connections), "-n", str(count // 2), "-t", "set,get", "-d", "64",
           "--csv"], server)
    answered = calls(server.port) - before
    if answered != count // 2 * 2:
        raise PeerFailure(f"{server.peer.name} failed under load: redis has answered {answered} of {count // 2 * 2}")
    return answered


@contextmanager
def redis():
    server = Server(SimpleNamespace(name="redis"), ROW, lambda _protocol, port, _row: [
        "taskset", "-c", str(cpus()[0]), "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
    try:
        yield server.port
    finally:
        server.stop()


def held(server, row, count):
    """What pairs cost that are all open, over what the proxy had before its first: memory that it has once had it may keep."""
    if not hasattr(server, "empty"):
        server.empty = server.memory()
    begin = time.monotonic()
    pairs = []
    for _ in range(count):
        pairs.append(socket.create_connection(("127.0.0.1", server.port), 5))
        pairs[-1].sendall(b"r" * 64)
        if pairs[-1].recv(64, socket.MSG_WAITALL) != b"r" * 64:
            raise PeerFailure(f"{server.peer.name} has lost or changed a byte")
    seconds, memory = time.monotonic() - begin, server.memory() - server.empty
    for pair in pairs:
        pair.close()
    return {"cost": memory * row.scale / count, "rate": count / seconds}


def loaded(server, row, count):
    if row.name == "idle":
        return held(server, row, count)
    before, begin = used(server), time.monotonic()
    done = (redis_load if row.name == "redis" else checked_load)(server, row, count)
    seconds = time.monotonic() - begin
    time.sleep(0.05)  # what the kernel still does for connections that end
    return {"cost": spent(server, before) * row.scale / done, "rate": done / row.size / seconds}


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def summary(rounds, references):
    """Costs, and the median of the ratios of each round to the variant of each reference that costs least."""
    costs = {name: [figure["cost"] for figure in figures] for name, figures in rounds.items()}
    result = {name: {"cost": spread(values), "rate": statistics.median(figure["rate"] for figure in rounds[name]), "ratios": {},
                     "rounds": rounds[name]} for name, values in costs.items()}
    for reference in references:
        variants = [name for name in costs if name.partition("-")[0] == reference]
        if variants:
            best = min(variants, key=lambda name: result[name]["cost"]["median"])
            for name, values in costs.items():
                ratios = [cost / other for cost, other in zip(values, costs[best], strict=True)]
                result[name]["ratios"][reference] = {"to": best, **spread(ratios)}
    return result


def measured(row, proxies, options, say):
    count = row.quick if options.quick else row.count
    rounds = {proxy.name: [] for proxy in proxies}
    with behind(proxies, redis if row.name == "redis" else echo) as servers:
        for server in servers.values():
            loaded(server, row, max(row.connections, count // 10))
        for number in range(options.rounds):
            say(f"{row.title}: round {number + 1} of {options.rounds}")
            for name, server in servers.items():
                rounds[name].append(loaded(server, row, count))
    return {"name": row.name, "title": row.title, "unit": row.unit, "rate": row.rate, "connections": row.connections, "count": count,
            "proxies": summary(rounds, ("haproxy", "tokio"))}

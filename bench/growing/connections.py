"""Echoes over sockets: what one costs the server, by connections, by size, by loops."""
import json
import os
import resource
import statistics
import subprocess
import tempfile

from driver.failure import Failure
from driver.process import cpus, own
from driver.program import listening

CONNECTIONS = (1, 64, 1_000, 10_000, 100_000)
SIZES = {"4": "4 bytes", "1k": "1 KiB", "64k": "64 KiB"}
# A socket holds up to some megabytes at each end: 100,000 of them with 64 KiB under way do not fit this machine.
LEFT_OUT = {("64k", 100_000)}
LOOPS = (1, 2)
LOOPS_CONNECTIONS = (1, 64, 1_000, 10_000)
HOLD_SECONDS = 3
# Descriptors that a server keeps for itself.
SPARE = 1_000


def descriptors():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def server_argv(program, connections, loops):
    """One process, or as many as the connections need descriptors."""
    argv = [program, "serve", "echo", "--loops", str(loops), "--listen", "127.0.0.1:0"]
    each = descriptors() - SPARE
    return argv if connections <= each else [*argv, "--model", "prefork", "--processes", str(-(-connections // each))]


def sources(connections):
    """One source address has some 28,000 ports; a network of 14 has more than enough."""
    return [] if connections <= 10_000 else ["--source", "127.1.0.0/28"]


def loaded(program, target, connections, size, pinned):
    """A run against the target: its result, and what was seen each second."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        argv = [program, "load", "echo", target, "-c", str(connections), "--size", size, "--interval", "0", "--timeout", "60",
                "--connect-rate", "20k", "--hold", str(HOLD_SECONDS), "--out", out, *sources(connections)]
        client = subprocess.run(argv, **own(cpus()[0] if pinned else None), capture_output=True, text=True)
        if client.returncode != 0:
            raise Failure(f"the load failed: {' '.join(argv)}: {client.stderr.strip()[-300:]}")
        with open(os.path.join(out, "result.json")) as file:
            result = json.load(file)
        with open(os.path.join(out, "series.ndjson")) as file:
            return result, [json.loads(line) for line in file]


def cost(series, connections):
    """Microseconds of the server for an operation: the median of the seconds in which all connections stand."""
    costs = []
    for before, sample in zip(series, series[1:]):
        whole = before["phase"] == sample["phase"] == "holding" and before["standing"] == sample["standing"] == connections
        rate, used = sample["per_second"]["operations"], sample["server"]["cpu"]
        if whole and rate and used is not None:
            costs.append(used * 1e6 / rate)
    if not costs:
        raise Failure(f"no whole second with {connections} connections was seen")
    return statistics.median(costs)


def measured(program, connections, size, loops=1, pinned=True):
    with listening(server_argv(program, connections, loops), cpus()[1] if pinned else None) as (_server, target):
        result, series = loaded(program, target, connections, size, pinned)
    if result["operations"]["failed"] or result["connections"]["failed"] or result["connections"]["lost"]:
        raise Failure(f"of {connections} connections some failed: {result['errors']}")
    return cost(series, connections)


def added(before, after):
    """The rounds of both."""
    return [{**new, "us": old["us"] + new["us"]} for old, new in zip(before, after, strict=True)]


def by_size(program, say):
    points = []
    for size in SIZES:
        for connections in CONNECTIONS:
            if (size, connections) not in LEFT_OUT:
                points.append({"size": size, "connections": connections, "us": [measured(program, connections, size)]})
                say(f"{SIZES[size]}, {connections} connections: {points[-1]['us'][0]:.2f} µs")
    return points


def by_loops(program, say):
    points = []
    for connections in LOOPS_CONNECTIONS:
        for loops in LOOPS:
            points.append({"loops": loops, "connections": connections, "us": [measured(program, connections, "4", loops, pinned=False)]})
            say(f"{loops} loops, {connections} connections: {points[-1]['us'][0]:.2f} µs")
    return points

"""The order of a run, and its tables."""
import argparse
import json
import time

from driver.command import ended, teller
from driver.failure import Failure
from driver.machine import machine
from driver.options import names, positive
from driver.process import cpus, raise_descriptors
from driver.report import number, ratio
from driver.written import save
from sealing.servers import usable

from . import servers
from .measure import ROWS, WORK, Measurement

SERVERS = tuple(kind.name for kind in servers.every())
# Connections that rest or listen, and descriptors that a process holds besides.
CONNECTIONS, QUICK_CONNECTIONS, SPARE = 10_000, 1_000, 200
say = teller("websocket")


def parsed():
    parser = argparse.ArgumentParser(
        prog="bench/websocket", description="Servers of WebSocket for the same work, interleaved, each on one CPU, the client on another. A server "
        "whose client finds a wrong or missing message is left out of the row and said; if it is ours, the run ends with 1.")
    parser.add_argument("--servers", type=names(SERVERS), metavar="LIST", default=SERVERS, help=f"of {','.join(SERVERS)} [default: all]")
    parser.add_argument("--only", type=names(WORK), metavar="LIST", default=WORK, help=f"of {','.join(WORK)} [default: all]")
    parser.add_argument("--rounds", type=positive(int), metavar="N", help="how often each is measured [default: 5; 3 at most but for echo]")
    parser.add_argument("--quick", action="store_true", help="1 short round, to see that all works")
    parser.add_argument("--json", metavar="FILE", help="write what was found there too")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.connections = QUICK_CONNECTIONS if options.quick else CONNECTIONS
    return options


def table(row):
    """80 columns at most. Ratios are medians of those of each round; busy: the share of the time in which the server used its CPU."""
    lines = [f"{row['title']}: {row['unit']}", "",
             f"{'':<14}{'min':>9}{'median':>9}{'max':>9}{'× ours':>9}{'busy':>7}{'grown, MiB':>12}"]
    for name, figures in row["servers"].items():
        # The bytes of an idle connection may be near zero.
        beside = ratio(figures, "ours") if "busy" in figures else "-"
        cost = "".join(f"{number(figures['cost'][key]):>9}" for key in ("min", "median", "max"))
        more = f"{figures['busy']:>7.0%}{figures['grown']['median'] / 2**20:>12.1f}" if "busy" in figures else ""
        lines.append(f"{name:<14}{cost}{beside:>9}{more}")
    lines += [f"{name:<14} failed" for name in row["failures"]]
    return "\n".join([*lines, ""])


def run():
    options = parsed()
    cpus()
    if raise_descriptors() < CONNECTIONS + SPARE and not options.quick:
        raise Failure(f"a process may have too few descriptors: raise ulimit -Hn to {CONNECTIONS + SPARE}, or ask for --only echo")
    found = usable([kind for kind in servers.every() if kind.name in options.servers], say, servers.build_rust)
    if not found:
        raise Failure("what was asked for is not here")
    about = [{"name": kind.name, "about": kind.about, "version": kind.version()} for kind in found]
    for kind in about:
        print(f"{kind['name']:<14}{kind['version']}, {kind['about']}")
    print()
    rows = []
    results = {"schema": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), "rounds": options.rounds, "servers": about,
               "rows": rows}
    for row in (row for row in ROWS if row.work in options.only):
        rows.append(Measurement(row, found, options, say).run())
        print(table(rows[-1]), flush=True)
        # After each row: whoever ends the run early keeps what it has found.
        if options.json:
            save(options.json, json.dumps(results, indent=1) + "\n")
    return 1 if any("ours" in row["failures"] for row in rows) else 0


def main():
    return ended(run, say, "all servers are stopped, rows that were finished are kept")

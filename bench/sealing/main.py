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

from . import servers
from .measure import ROWS, measured

SERVERS = tuple(kind.name for kind in servers.every())
WORK = tuple(row.name for row in ROWS)
# What a process holds besides connections.
SPARE = 200
say = teller("tls")


def parsed():
    parser = argparse.ArgumentParser(
        prog="bench/tls", description="Servers of TLS 1.3 for the same work, interleaved, each on one CPU, the client on another. A wrong or "
        "missing byte, or a handshake of another kind, ends the run with 1.")
    parser.add_argument("--servers", type=names(SERVERS), metavar="LIST", default=SERVERS, help=f"of {','.join(SERVERS)} [default: all]")
    parser.add_argument("--only", type=names(WORK), metavar="LIST", default=WORK, help=f"of {','.join(WORK)} [default: all]")
    parser.add_argument("--rounds", type=positive(int), metavar="N", help="how often each is measured [default: 9; 3 for idle]")
    parser.add_argument("--quick", action="store_true", help="2 rounds, to see that all works")
    parser.add_argument("--json", metavar="FILE", help="write what was found there too")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 9)
    return options


def table(row):
    """80 columns at most. A rate is for a second of CPU; ratios are medians of those of each round."""
    rate = row["rate"] and f"{row['rate']}/s"
    lines = [f"{row['title']}: {row['unit']}", "",
             f"{'':<8}{'min':>8}{'median':>8}{'max':>8}{'× rustls':>11}{'× tokio':>10}{'× tokio-1':>12}{rate:>15}".rstrip()]
    for name, figures in row["servers"].items():
        cost = "".join(f"{number(figures['cost'][key]):>8}" for key in ("min", "median", "max"))
        done = f"{1e6 / figures['cost']['median']:>15,.0f}" if rate else ""
        lines.append(f"{name:<8}{cost}{ratio(figures, 'rustls'):>11}{ratio(figures, 'tokio'):>10}{ratio(figures, 'tokio-1'):>12}{done}")
    return "\n".join([*lines, ""])


def run():
    options = parsed()
    cpus()
    needed = max(row.connections for row in ROWS if row.name in options.only) * 5 // 4 + SPARE
    if raise_descriptors() < needed and not options.quick:
        raise Failure(f"a process may have too few descriptors: raise ulimit -Hn to {needed}, or leave idle out of --only")
    found = servers.usable([kind for kind in servers.every() if kind.name in options.servers], say)
    if not found:
        raise Failure("what was asked for is not here")
    about = [{"name": kind.name, "about": kind.about, "version": kind.version()} for kind in found]
    for kind in about:
        print(f"{kind['name']:<10}{kind['version']}, {kind['about']}")
    print()
    rows = []
    results = {"schema": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), "rounds": options.rounds, "servers": about,
               "rows": rows}
    for row in (row for row in ROWS if row.name in options.only):
        rows.append(measured(row, found, options, say))
        print(table(rows[-1]), flush=True)
        # After each row: whoever ends the run early keeps what it has found.
        if options.json:
            save(options.json, json.dumps(results, indent=1) + "\n")
    return 0


def main():
    return ended(run, say, "all servers are stopped, rows that were finished are kept")

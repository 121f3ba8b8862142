"""The order of a run, and its tables."""
import argparse
import json
import shutil
import time

from driver.command import ended, teller
from driver.failure import Failure
from driver.machine import machine
from driver.options import names, positive
from driver.peers import OURS
from driver.process import cpus, raise_descriptors
from driver.report import number, ratio
from driver.written import save

from . import behaviour, proxies
from .measure import ROWS, measured

FAMILIES = tuple(dict.fromkeys(proxy.family for proxy in proxies.every()))
WORK = tuple(row.name for row in ROWS)
say = teller("proxy")


def parsed():
    parser = argparse.ArgumentParser(
        prog="bench/proxy", description="CPU of proxies for TCP for the same work, interleaved, each on one CPU, client and backend on "
        "another; or, with --behaviour, what they do at the edges of a connection. A wrong or missing byte ends the run with 1.")
    parser.add_argument("--only", type=names(FAMILIES), metavar="LIST", default=FAMILIES, help=f"proxies, of {','.join(FAMILIES)} [default: all]")
    parser.add_argument("--work", type=names(WORK), metavar="LIST", help=f"of {','.join(WORK)} [default: all but redis]")
    parser.add_argument("--redis", action="store_true", help="redis-benchmark through each to redis-server as well")
    parser.add_argument("--rounds", type=positive(int), metavar="N", help="how often each is measured [default: 5]")
    parser.add_argument("--quick", action="store_true", help="2 rounds of a tenth, to see that all works")
    parser.add_argument("--behaviour", action="store_true", help="pass or fail of each, no costs; 1 if sockdrawer fails")
    parser.add_argument("--sockdrawer", metavar="PATH", help="the program [default: build this repository's]")
    parser.add_argument("--json", metavar="FILE", help="write what was found there too")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.work = options.work or [name for name in WORK if name != "redis"]
    if options.redis:
        options.work = [*options.work, "redis"]
    return options


def table(row):
    """80 columns at most."""
    lines = [f"{row['title']}: {row['unit']}", "",
             f"{'':<15}{'min':>9}{'median':>9}{'max':>9}{'× haproxy':>12}{'× tokio':>10}{row['rate']:>15}"]
    for name, figures in row["proxies"].items():
        cost = "".join(f"{number(figures['cost'][key]):>9}" for key in ("min", "median", "max"))
        lines.append(f"{name:<15}{cost}{ratio(figures, 'haproxy'):>12}{ratio(figures, 'tokio'):>10}{figures['rate']:>15,.0f}")
    to = sorted({found["to"] for figures in row["proxies"].values() for found in figures["ratios"].values()})
    note = ["", f"Ratios: medians of those of each round, to {' and '.join(to)}."] if to else []
    return "\n".join([*lines, *note, ""])


def header(options, found):
    return {"schema": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), "rounds": options.rounds,
            "proxies": [{"name": proxy.name, "about": proxy.about, "version": proxy.version() if proxy.version else ""} for proxy in found]}


def costs(options, found):
    if "redis" in options.work and not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        raise Failure("redis-server and redis-benchmark are not both here: leave --redis out")
    proxies.build_ends()
    rows = []
    results = {**header(options, found), "rows": rows}
    for proxy in results["proxies"]:
        print(f"{proxy['name']:<15}{', '.join(filter(None, (proxy['version'], proxy['about'])))}")
    print()
    for row in (row for row in ROWS if row.name in options.work):
        rows.append(measured(row, found, options, say))
        print(table(rows[-1]), flush=True)
        # After each row: whoever ends the run early keeps what it has found.
        keep(options, results)
    return 0


def behaviours(options, found):
    cells = behaviour.observed([proxy for proxy in found if proxy.behaves], say)
    print(behaviour.table(cells))
    keep(options, {**header(options, found), "behaviour": cells})
    return 1 if any(cell["proxy"] == OURS and not cell["passed"] for cell in cells) else 0


def keep(options, results):
    if options.json:
        save(options.json, json.dumps(results, indent=1) + "\n")


def run():
    options = parsed()
    cpus()
    raise_descriptors()
    found = proxies.usable([proxy for proxy in proxies.every(options.sockdrawer) if proxy.family in options.only], say)
    if not found or (OURS in options.only and OURS not in [proxy.name for proxy in found]):
        raise Failure("what was asked for is not here")
    return behaviours(options, found) if options.behaviour else costs(options, found)


def main():
    return ended(run, say, "all proxies are stopped, rows that were finished are kept")

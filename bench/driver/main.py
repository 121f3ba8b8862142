"""The order of a run: build, measure row by row, write after each row."""
import json
import os
import resource
import sys
import time

from . import peers as catalog
from . import report
from .command import ended, teller
from .failure import Failure, PeerFailure
from .machine import machine
from .measure import Measurement
from .options import parse
from .paths import PUBLISHED_CHART, PUBLISHED_JSON, relative
from .process import cpus, raise_descriptors
from .workloads import few_rows, rows

SCHEMA = 1
say = teller("bench")


def built(peers, ranch_path):
    """Those that can be measured, why others are skipped, and those that should build and do not."""
    usable, skipped, failures, done = [], [], [], {}
    for peer in peers:
        absent = catalog.missing(peer, ranch_path)
        if not absent and peer.build not in done:
            done[peer.build] = attempt(peer)
        broken = None if absent else done[peer.build]
        if (absent or broken) and peer.name in ("floor", catalog.OURS):
            raise Failure(absent or broken)
        if absent:
            say(f"{peer.name} is skipped: {absent}")
            skipped.append({"peer": peer.name, "why": absent})
        elif broken:
            say(broken)
            failures.append({"row": "all", "peer": peer.name, "why": broken})
        else:
            usable.append(peer)
    return usable, skipped, failures


def attempt(peer):
    """Builds it, and what is built with it; says why it does not build, if it does not."""
    say(f"building {peer.title}")
    try:
        peer.build()
    except PeerFailure as failure:
        return str(failure)
    return None


def header(options, peers, skipped, failures):
    def version(peer):
        return (peer.version() if callable(peer.version) else peer.version) or "?"

    return {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "peers": [{"name": peer.name, "title": peer.title, "about": peer.about, "version": version(peer)} for peer in peers],
        "skipped": skipped,
        "failures": failures,
        "rows": [],
    }


def measured(options):
    asked = few_rows() if options.check else rows(options.only)
    demand(asked)
    available = catalog.all_peers(options.sockdrawer, options.ranch)
    peers, skipped, failures = built([peer for peer in available if peer.name in ("floor", "again", *options.peers)], options.ranch)
    results = header(options, peers, skipped, failures)
    for row in asked:
        measurement = Measurement(row, peers, options, say)
        figures = measurement.run()
        results["failures"] += measurement.failures
        results["rows"].append({"name": row.name, "title": row.title, "operation": row.operation, "idle": row.idle,
                                "model": row.model, "servers": figures})
        # After each row: whoever ends the run early keeps what it has found.
        if not options.check:
            report.write(options.out, results)
    return results


def demand(asked):
    """What this machine must have for these rows. Both ends inherit the limit."""
    cpus()
    hard, most = raise_descriptors(), max(asked, key=lambda row: row.descriptors)
    if hard != resource.RLIM_INFINITY and hard < most.descriptors:
        raise Failure(f"a process may have {hard} open files, the row {most.title!r} needs {most.descriptors}: raise `ulimit -Hn`, "
                      "or leave the row out with --only")
    if not os.path.exists("/proc/self/schedstat") and not all(row.idle or row.model for row in asked):
        raise Failure("this kernel does not tell what threads used: /proc/PID/schedstat is missing, which CONFIG_SCHEDSTATS gives; "
                      "--only idle,models does without")


def run(arguments):
    options = parse(arguments, [peer.name for peer in catalog.all_peers() if peer.name not in ("floor", "again")])
    if options.source:
        with open(options.source) as file:
            results = json.load(file)
        report.write(options.out, results)
    else:
        results = measured(options)
    if options.check:
        say("check: failed" if results["failures"] else "check: all answered right, under load too")
        return 1 if results["failures"] else 0
    print(report.markdown(results))
    if options.publish:
        report.publish(results)
        say(f"written: docs/benchmarks.md, {relative(PUBLISHED_JSON)}, {relative(PUBLISHED_CHART)}")
    say(f"written: results.md, results.json and chart.svg in {relative(os.path.abspath(options.out))}")
    return 1 if results["failures"] else 0


def main():
    return ended(lambda: run(sys.argv[1:]), say, "all servers are stopped, rows that were finished are written")

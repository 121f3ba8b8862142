"""The order of a run, and its tables."""
import argparse
import json
import re
import statistics
import time

from driver.command import ended, teller
from driver.failure import Failure, PeerFailure
from driver.machine import machine
from driver.options import names, positive
from driver.peers import OURS, output
from driver.process import cpus, raise_descriptors
from driver.program import built
from driver.report import number
from driver.written import save
from proxying.proxies import tool

from .measure import SPARE, measured
from .tools import CLIENTS, WORKS

HEAD = ("client", "reported", "in the log", "requests/s", "CPU for a request, µs: least, median", "memory, MiB", "p50", "p99")
say = teller("clients")


def parsed():
    parser = argparse.ArgumentParser(
        prog="bench/clients", description="CPU for a request, memory, percentiles and counts of clients of HTTP, interleaved: nginx on one "
        "CPU, each client in turn on another. A client that is not here is left out. The exit code is 1 if one failed, or if sockdrawer "
        "counts other requests than the log of nginx.")
    works, clients = [work.name for work in WORKS], [client.name for client in CLIENTS]
    parser.add_argument("--only", type=names(works), metavar="LIST", default=works, help=f"workloads, of {','.join(works)} [default: all]")
    parser.add_argument("--clients", type=names(clients), metavar="LIST", default=clients, help=f"of {','.join(clients)} [default: all]")
    parser.add_argument("--rounds", type=positive(int), metavar="N", help="how often each is measured [default: 5]")
    parser.add_argument("--seconds", type=positive(int), metavar="T", help="how long a round of one client takes [default: 5]")
    parser.add_argument("--quick", action="store_true", help="1 round of 2 seconds, to see that all works")
    parser.add_argument("--sockdrawer", metavar="PATH", help="measure this program [default: build the one of this repository]")
    parser.add_argument("--json", metavar="FILE", help="write every run there")
    options = parser.parse_args()
    options.rounds, options.seconds = options.rounds or (1 if options.quick else 5), options.seconds or (2 if options.quick else 5)
    return options


def here(options):
    """Clients that this machine has, each with its path."""
    found = []
    for client in (client for client in CLIENTS if client.name in options.clients):
        path = (options.sockdrawer or built()) if client.name == OURS else tool(client.name)
        if path:
            found.append((client, path))
        else:
            say(f"{client.name} is left out: it is not on the PATH")
    if not found or not tool("nginx"):
        raise Failure("no client is here" if tool("nginx") else "nginx not found: install it (Debian: apt-get install nginx-light)")
    return found


def rounds(work, clients, options):
    """The runs of each client, and what failed."""
    clients = [(client, path) for client, path in clients if client.does(work)]
    runs, failures = {client.name: [] for client, _ in clients}, []
    for place in range(options.rounds):
        say(f"{work.title}: round {place + 1} of {options.rounds}")
        turn = place % max(1, len(clients))
        for client, path in clients[turn:] + clients[:turn]:
            try:
                runs[client.name].append(measured(client, path, work, options.seconds))
            except PeerFailure as failure:
                failures.append(f"{client.name}, round {place + 1}: {' '.join(str(failure).split())}")
                say(failures[-1])
    return {"title": work.title, "rate": work.rate, "runs": runs, "failures": failures}


def version(client, path):
    found = re.search(r"\d+\.\d+(\.\d+)?", output([path, client.version]))
    return f" {found[0]}" if found else ""


def median(runs, key):
    values = [run[key] for run in runs if run[key] is not None]
    return statistics.median(values) if values else None


def time_of(value):
    return "-" if value is None else f"{number(value / 1e3)} ms" if value >= 1e3 else f"{number(value)} µs"


def line(name, runs, mark):
    reported, logged = (sum(run[key] for run in runs) for key in ("reported", "logged"))
    more = f" ({logged - reported:+,})" if logged != reported else ""
    cpu = f"{number(min(run['cpu_us'] for run in runs))}, {number(median(runs, 'cpu_us'))}"
    times = [time_of(median(runs, key)) + mark for key in ("p50_us", "p99_us")]
    return [name, f"{reported:,}", f"{logged:,}{more}", f"{median(runs, 'per_second'):,.0f}", cpu, number(median(runs, "memory_bytes") / 2**20), *times]


def table(row):
    """A star marks times that count from when a request was sent, and not from when it was due."""
    late = {client.name for client in CLIENTS if row["rate"] and not client.corrected}
    lines = [HEAD, ["---"] + ["---:"] * (len(HEAD) - 1)]
    lines += [line(name, runs, "\\*" if name in late else "") for name, runs in row["runs"].items() if runs]
    due = median([run for runs in row["runs"].values() for run in runs], "due_p99_us")
    if due:
        lines.append(["the stops alone", *["-"] * (len(HEAD) - 2), time_of(due)])
    return "\n".join([f"### {row['title']}", "", *("| " + " | ".join(cells) + " |" for cells in lines), "", *row["failures"]])


def wrong(row):
    return row["failures"] or any(run["reported"] != run["logged"] for run in row["runs"].get(OURS, []))


def run():
    options = parsed()
    cpus()
    descriptors = raise_descriptors()
    clients = here(options)
    rows = {}
    results = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), "rounds": options.rounds, "seconds": options.seconds,
               "versions": {client.name: version(client, path) for client, path in clients}, "rows": rows}
    print(f"{options.rounds} rounds of {options.seconds} s:{','.join(f' {name}{about}' for name, about in results['versions'].items())}\n")
    for work in (work for work in WORKS if work.name in options.only):
        if (files := work.connections * 5 // 4 + SPARE) > descriptors:
            say(f"{work.title}: left out, {files} open files are needed and a process has {descriptors} (ulimit -Hn)")
            continue
        rows[work.name] = rounds(work, clients, options)
        print(table(rows[work.name]), flush=True)
        # After each: what was measured is kept if the run is interrupted.
        if options.json:
            save(options.json, json.dumps(results, indent=1) + "\n")
    return 1 if any(wrong(row) for row in rows.values()) else 0


def main():
    return ended(run, say, "workloads that were finished are kept")

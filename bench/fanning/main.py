"""The order of a run: each shape in rounds, every broker once in a round, and each round begins with another one."""
import argparse
import json
import time

from driver.command import ended, teller
from driver.failure import Failure, PeerFailure
from driver.machine import machine
from driver.options import names, positive
from driver.peers import OURS, missing
from driver.process import raise_descriptors
from driver.written import save

from . import page
from .brokers import brokers
from .measure import INTERVAL_US, Shape, build_client, measured

BROKERS = (OURS, "tokio", "nats", "mosquitto")
MODES = ("paced", "burst")
SUBSCRIBERS = {"paced": 10_000, "burst": 1_000}
# What a process holds besides subscribers.
SPARE = 200
say = teller("fanout")


def count(least):
    def parse(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is not a number of at least {least}")
        return int(text)
    return parse


def parsed():
    parser = argparse.ArgumentParser(
        prog="bench/fanout", description="One publisher, many subscribers: brokers beside each other, each in turn.")
    add = parser.add_argument
    add("--mode", type=names(MODES), metavar="LIST", help="paced,burst [default: both, or burst where --burst-lines is given]")
    add("--only", type=names(BROKERS), metavar="LIST", default=BROKERS, help=f"of {','.join(BROKERS)} [default: all]")
    add("--subscribers", type=count(1), metavar="N", help="[default: 10000 paced, 1000 in a burst]")
    add("--seconds", type=positive(float), metavar="T", help="how long one line is published each millisecond [default: 60]")
    add("--burst-lines", type=count(1), metavar="N", help="written in one go [default: 500]")
    add("--stalled", type=count(0), metavar="K", default=0, help="K subscribers never read; a run without them is beside it")
    add("--rounds", type=count(1), metavar="N", help="how often each is measured [default: 3]")
    add("--quick", action="store_true", help="1 round of 5 seconds, to see that all works")
    add("--no-pin", action="store_true", help="server and client on all CPUs [default: one each]")
    add("--memory-limit", type=count(1), metavar="GIB", default=8, help="a broker that takes more is ended [default: 8]")
    add("--sockdrawer", metavar="PATH", help="measure this broker [default: build the example broker of this repository]")
    add("--json", metavar="FILE", help="write every run there")
    options = parser.parse_args()
    options.mode = options.mode or (["burst"] if options.burst_lines else MODES)
    options.seconds = options.seconds or (5 if options.quick else 60)
    options.rounds = options.rounds or (1 if options.quick else 3)
    return options


def shapes(options, descriptors):
    for mode in options.mode:
        subscribers = options.subscribers or SUBSCRIBERS[mode]
        if subscribers > descriptors - SPARE:
            raise Failure(f"{subscribers} subscribers need more than the {descriptors} descriptors of a process: raise ulimit -Hn, or ask for less")
        if options.stalled >= subscribers:
            raise Failure(f"of {subscribers} subscribers {options.stalled} cannot be stalled: one at least must read")
        lines, interval = (int(options.seconds * 1e6 / INTERVAL_US), INTERVAL_US) if mode == "paced" else (options.burst_lines or 500, 0)
        for stalled in sorted({0, options.stalled}):
            yield Shape(mode, subscribers, lines, interval, stalled)


def built(options):
    """Those that this machine has; the names of the others are said."""
    ready = []
    for peer in brokers(options):
        try:
            why = missing(peer, None)
            if why:
                raise PeerFailure(f"{peer.name}: {why}")
            if peer.build:
                peer.build()
            ready.append(peer)
        except PeerFailure as failure:
            say(f"{failure}; left out")
    if not ready:
        raise Failure("no broker is left")
    return ready


def rounds(peers, wanted, options):
    """Of each shape, the runs of each broker; None stands for one that failed."""
    found = {shape: {peer.name: [] for peer in peers} for shape in wanted}
    for place in range(options.rounds):
        turn = place % len(peers)
        for peer in peers[turn:] + peers[:turn]:
            for shape in wanted:
                say(f"round {place + 1} of {options.rounds}, {peer.name}, {shape.title()}")
                try:
                    run = measured(peer, shape, options)
                except PeerFailure as failure:
                    say(str(failure))
                    run = None
                found[shape][peer.name].append(run)
    return found


def failed(found):
    """Whether sockdrawer did not do its work; what others lose is what this is about."""
    runs = [run for servers in found.values() for run in servers.get(OURS, [])]
    return any(run is None or run["lost"] or run["disorder"] or run["wrong"] or run["closed"] for run in runs)


def run():
    options = parsed()
    wanted = list(shapes(options, raise_descriptors()))
    build_client()
    peers = built(options)
    found = rounds(peers, wanted, options)
    about = {peer.name: f"{peer.about}; {peer.version()}" for peer in peers}
    print(page.text(found))
    for name, words in about.items():
        print(f"{name}: {words}")
    if options.json:
        runs = [{**vars(shape), "servers": servers} for shape, servers in found.items()]
        result = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), "pinned": not options.no_pin, "about": about, "runs": runs}
        save(options.json, json.dumps(result, indent=1) + "\n")
    return 1 if failed(found) else 0


def main():
    return ended(run, say, "nothing is kept")

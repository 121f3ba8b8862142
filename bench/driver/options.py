"""What can be asked for."""
import argparse

from .paths import OUT, relative
from .workloads import WORKLOADS


def names(valid):
    def parse(text):
        asked = [name for name in text.split(",") if name]
        wrong = [name for name in asked if name not in valid]
        if wrong or not asked:
            raise argparse.ArgumentTypeError(f"{wrong[0] if wrong else 'nothing'} is none of {', '.join(valid)}")
        return asked
    return parse


def positive(kind):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value <= 3600:
            raise argparse.ArgumentTypeError(f"{text} is not a number above 0 and up to 3600")
        return value
    return parse


def parse(arguments, peers):
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Server CPU per operation, rate, p99 and memory per idle connection of sockdrawer, its "
        "peers and a C loop, the floor: the same work, interleaved, servers on one CPU and clients on another. What the "
        "machine cannot build is skipped by name.")
    parser.add_argument("--rounds", type=positive(int), metavar="N", help="how often each is measured [default: 5]")
    parser.add_argument("--seconds", type=positive(float), metavar="T", help="how long a round of one server takes [default: 2]")
    parser.add_argument("--only", type=names(WORKLOADS), metavar="LIST", default=WORKLOADS,
                        help=f"workloads, of {','.join(WORKLOADS)} [default: all]")
    parser.add_argument("--peers", type=names(peers), metavar="LIST", default=peers,
                        help=f"servers beside the floor, of {','.join(peers)} [default: all]")
    parser.add_argument("--out", metavar="DIR", default=OUT,
                        help=f"where results.md, results.json and chart.svg go [default: {relative(OUT)}]")
    parser.add_argument("--sockdrawer", metavar="PATH", help="measure this program [default: build the one of this repository]")
    parser.add_argument("--ranch", metavar="PATH", help="the folder of ranch 2, with src or ebin; without it ranch is skipped")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 second, to see that all works")
    parser.add_argument("--check", action="store_true", help="does it work: sockdrawer and the floor alone, one short round of each workload, no results")
    parser.add_argument("--publish", action="store_true",
                        help="write the results to docs/benchmarks.md, its JSON and its chart as well")
    parser.add_argument("--from", dest="source", metavar="FILE", help="measure nothing: make table and chart of a results.json")
    options = parser.parse_args(arguments)
    if options.check:
        options.peers = ["sockdrawer"]
    rounds, seconds = (1, 0.2) if options.check else (2, 1.0) if options.quick else (5, 2.0)
    options.rounds, options.seconds = options.rounds or rounds, options.seconds or seconds
    return options

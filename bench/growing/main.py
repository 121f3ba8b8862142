"""The order of a run: each part alone, so that a long one can be repeated and the others kept."""
import argparse
import json
import os
import time

from driver.command import ended, teller
from driver.failure import Failure
from driver.machine import machine
from driver.paths import OUT, ROOT, relative
from driver.process import raise_descriptors
from driver.program import built
from driver.written import publish, save

from . import connections, inside, page

PARTS = {"connections": connections.by_size, "loops": connections.by_loops, "generations": inside.generations, "timers": inside.timers}
RESULTS = os.path.join(OUT, "growth.json")
PUBLISHED = os.path.join(ROOT, "docs", "benchmarks", "growth.md")
PUBLISHED_CHART = os.path.join(ROOT, "docs", "images", "growth.svg")
say = teller("growth")


def parsed():
    parser = argparse.ArgumentParser(prog="bench/growth", description="How the cost of an operation grows.")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; what was found of others is kept")
    parser.add_argument("--add", action="store_true", help="another round of connections and loops; the medians of all count")
    parser.add_argument("--sockdrawer", help="the program to measure connections and loops of, instead of this repository's")
    parser.add_argument("--publish", action="store_true", help="write what was found into docs/benchmarks/growth.md")
    parser.add_argument("--from", dest="source", action="store_true", help="measure nothing: table and chart of what was found before")
    return parser.parse_args()


def kept():
    try:
        with open(RESULTS) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def run():
    options = parsed()
    raise_descriptors()
    results = kept()
    if not options.source:
        binary = options.sockdrawer or built()
        for part in options.only or PARTS:
            found = PARTS[part](binary, say)
            if options.add and part in ("connections", "loops"):
                found = connections.added(kept()[part], found) if part in kept() else found
            here, day = machine(), time.strftime("%Y-%m-%d", time.gmtime())
            origins = {**kept().get("origins", {}), part: f"{day}, commit {here['commit']}"}
            results = {**kept(), "date": day, "machine": here, "origins": origins, part: found}
            # After each part: whoever ends the run early keeps what it has found.
            save(RESULTS, json.dumps(results, indent=1) + "\n")
    if "machine" not in results:
        raise Failure("nothing was measured yet")
    print(page.markdown(results))
    save(os.path.join(OUT, "growth.svg"), page.chart(results))
    if options.publish:
        publish(PUBLISHED, "bench/growth", page.markdown(results))
        save(PUBLISHED_CHART, page.chart(results))
    say(f"written: growth.json and growth.svg in {relative(OUT)}")
    return 0


def main():
    return ended(run, say, "parts that were finished are kept")

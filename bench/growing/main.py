"""The order of a run: each part alone, so that a long one can be repeated and the others kept."""
import argparse
import json
import os
import resource
import subprocess
import sys
import time

from driver.failure import Failure
from driver.machine import machine
from driver.paths import OUT, ROOT, relative

from . import connections, inside, page

PARTS = {"connections": connections.by_size, "loops": connections.by_loops, "generations": inside.generations, "timers": inside.timers}
RESULTS = os.path.join(OUT, "growth.json")
PUBLISHED = os.path.join(ROOT, "docs", "benchmarks", "growth.md")
PUBLISHED_CHART = os.path.join(ROOT, "docs", "images", "growth.svg")
BEGIN, END = "<!-- bench/growth --publish writes from here -->", "<!-- to here -->"


def say(text):
    print(f"growth: {text}", file=sys.stderr, flush=True)


def parsed():
    parser = argparse.ArgumentParser(prog="bench/growth", description="How the cost of an operation grows.")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part; what was found of others is kept")
    parser.add_argument("--add", action="store_true", help="another round of connections and loops; the medians of all count")
    parser.add_argument("--sockdrawer", help="the program to measure connections and loops of, instead of this repository's")
    parser.add_argument("--publish", action="store_true", help="write what was found into docs/benchmarks/growth.md")
    parser.add_argument("--from", dest="source", action="store_true", help="measure nothing: table and chart of what was found before")
    return parser.parse_args()


def program(path):
    if path is None:
        built = subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "sockdrawer-cli"], cwd=ROOT)
        if built.returncode != 0:
            raise Failure("the program does not build")
    return path or os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release", "sockdrawer")


def kept():
    try:
        with open(RESULTS) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def save(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def publish(results):
    with open(PUBLISHED) as file:
        before, begin, rest = file.read().partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise Failure(f"{relative(PUBLISHED)} lacks the lines between which results stand: {BEGIN} and {END}")
    save(PUBLISHED, f"{before}{BEGIN}\n\n{page.markdown(results)}\n{END}{after}")
    save(PUBLISHED_CHART, page.chart(results))


def run():
    options = parsed()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results = kept()
    if not options.source:
        binary = program(options.sockdrawer)
        for part in options.only or PARTS:
            found = PARTS[part](binary, say)
            if options.add and part in ("connections", "loops"):
                found = connections.added(kept()[part], found) if part in kept() else found
            results = {**kept(), "date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine(), part: found}
            # After each part: whoever ends the run early keeps what it has found.
            save(RESULTS, json.dumps(results, indent=1) + "\n")
    if "machine" not in results:
        raise Failure("nothing was measured yet")
    print(page.markdown(results))
    save(os.path.join(OUT, "growth.svg"), page.chart(results))
    if options.publish:
        publish(results)
    say(f"written: growth.json and growth.svg in {relative(OUT)}")
    return 0


def main():
    try:
        return run()
    except KeyboardInterrupt:
        say("interrupted; parts that were finished are kept")
        return 130
    except (Failure, OSError, json.JSONDecodeError) as failure:
        say(str(failure))
        return 1

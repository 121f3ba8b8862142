"""Where things are."""
import os

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(BENCH)
FLOOR = os.path.join(BENCH, "floor")
PEERS = os.path.join(BENCH, "peers")
OUT = os.path.join(ROOT, "target", "bench")
BUILD = os.path.join(OUT, "build")
LOGS = os.path.join(OUT, "logs")
PUBLISHED = os.path.join(ROOT, "docs", "benchmarks.md")
PUBLISHED_JSON = os.path.join(ROOT, "docs", "benchmarks.json")
PUBLISHED_CHART = os.path.join(ROOT, "docs", "images", "benchmarks.svg")


def relative(path):
    """As somebody in the current folder would write it."""
    short = os.path.relpath(path)
    return path if short.startswith("..") else short

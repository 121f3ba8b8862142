"""What programs inside the library's crate measure of it: generations and timers."""
import os
import subprocess
import tempfile

from driver.failure import Failure
from driver.paths import ROOT


def ran(argv, environment=None):
    run = subprocess.run(argv, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise Failure(f"{' '.join(argv)} failed")
    return run.stdout


def pairs(first, text):
    """The lines that begin with a word, each as a dictionary of its words in pairs."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == [first]:
            found.append({name: float(value) for name, value in zip(words[0::2], words[1::2])})
    if not found:
        raise Failure(f"no line that begins with {first} was printed")
    return found


def generations(_program, _say):
    return pairs("generations", ran(["cargo", "bench", "--quiet", "--package", "sockdrawer", "--bench", "generations"]))


def timers(_program, _say):
    with tempfile.NamedTemporaryFile("r", suffix=".txt") as file:
        ran(["cargo", "test", "--quiet", "--profile", "dist", "--package", "sockdrawer", "--lib", "timer::growth"], {"SOCKDRAWER_TIMERS": file.name})
        return pairs("timers", file.read())

"""What a program of the benchmarks is, whatever it measures: it says how far it is, ends when it is told to, and tells why in a line."""
import json
import signal
import sys

from .failure import Failure


def teller(name):
    return lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True)


def interrupted(*_):
    raise KeyboardInterrupt


def ended(run, say, kept):
    """Its exit code. `kept` is what is there of a run that was interrupted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupted)
    try:
        return run()
    except KeyboardInterrupt:
        say(f"interrupted; {kept}")
        return 130
    except (Failure, OSError, json.JSONDecodeError) as failure:
        say(str(failure))
        return 1

"""This repository's program: how it is built, and its servers, which say when they listen."""
import json
import os
import select
import subprocess
import time
from contextlib import contextmanager

from .failure import Failure
from .paths import ROOT
from .process import START_SECONDS, end, spawn

BUILD = ["cargo", "build", "--locked", "--quiet", "--message-format=json-render-diagnostics"]
CARGO = [*BUILD, "--profile", "dist", "--package", "sockdrawer-cli", "--bin", "sockdrawer"]
LISTENING = "listening on "


def built(cargo=CARGO):
    """Its path, as it is released. Where that is says cargo, which has many ways to be told; its errors go to standard error."""
    build = subprocess.run(cargo, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if build.returncode != 0:
        raise Failure("the program does not build")
    programs = [path for path in (json.loads(line).get("executable") for line in build.stdout.splitlines()) if path]
    if len(programs) != 1:
        raise Failure(f"cargo built {programs or 'no program'}, and not the program alone: {' '.join(cargo)}")
    return programs[0]


def line_within(stream, seconds):
    """The first line of a pipe, or what of it has come by then or by the pipe's end."""
    line, last = b"", time.monotonic() + seconds
    while not line.endswith(b"\n") and select.select([stream], [], [], max(0, last - time.monotonic()))[0]:
        byte = os.read(stream.fileno(), 1)
        if not byte:
            break
        line += byte
    return line.decode(errors="replace")


@contextmanager
def listening(argv, cpu, batch=False, seconds=START_SECONDS, stderr=None):
    """The server that this starts, and where it listens; afterwards it has ended, whatever came."""
    server = spawn(argv, cpu, batch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, bufsize=0)
    try:
        line = line_within(server.stdout, seconds)
        if not line.startswith(LISTENING) or not line.endswith("\n"):
            said = repr(line.strip()) if line else "nothing"
            raise Failure(f"the server does not say within {seconds} s where it listens, but {said}: {' '.join(argv)}")
        yield server, line.split()[-1]
    finally:
        end(server)
        server.stdout.close()

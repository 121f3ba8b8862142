"""Who is measured, and how each is built and started. A server is told its protocol and its port, and uses all CPUs that it
may: the driver gives each the same one."""
import os
import shutil
import subprocess
from dataclasses import dataclass, field

from .failure import PeerFailure
from .paths import BUILD, FLOOR, LOGS, PEERS, ROOT, relative
from .workloads import FLOOR_ENVIRONMENT

FLOOR_MODES = {"ping": "pp", "http": "http", "acks": "ack"}
OURS = "sockdrawer"


@dataclass
class Peer:
    name: str
    title: str
    about: str  # what of it is measured
    tools: tuple  # what must be on the PATH
    command: object  # from (protocol, port, row) to arguments
    build: object = None
    version: object = None  # a text, or a function that finds one
    environment: object = field(default=lambda workload: {})
    idle_base: object = None  # the command whose memory is zero, if not its own before the connections
    splits: bool = True  # answers what arrives in pieces


def run(name, argv, cwd, environment=None):
    """One step of a build; what it says goes to a log of the peer."""
    os.makedirs(LOGS, exist_ok=True)
    log = os.path.join(LOGS, f"build-{name}.log")
    with open(log, "a") as file:
        print("$", *argv, file=file, flush=True)
        done = subprocess.run(argv, cwd=cwd, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                              stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    if done.returncode:
        raise PeerFailure(f"{name} does not build: `{' '.join(argv[:3])}` ended with {done.returncode}; see {relative(log)}")


def output(argv, cwd=None):
    """What a tool says about itself, in one line."""
    try:
        done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.strip() or done.stderr.strip()).split("\n")[0]


def locked(lock, marker, name):
    """The version of a package in a lock file: of the first line after the name that has the marker."""
    found = False
    with open(lock) as file:
        for line in file:
            found = found or name in line
            if found and marker in line:
                return line.replace(marker, " ").replace(name, " ").strip(' \t\n"').split()[0]
    return "?"


def build_floor():
    os.makedirs(BUILD, exist_ok=True)
    for program in ("floor_epoll", "client"):
        run("floor", ["cc", "-O2", "-w", "-pthread", "-o", os.path.join(BUILD, program), program + ".c"], FLOOR)


def floor_command(protocol, port, _row):
    return [os.path.join(BUILD, "floor_epoll"), FLOOR_MODES[protocol], str(port), "1"]


def floors():
    shared = dict(tools=("cc",), command=floor_command, environment=FLOOR_ENVIRONMENT.get, splits=False,
                  version=lambda: output(["cc", "--version"]))
    return [Peer("floor", "C loop (the floor)", "epoll, and nothing that the work does not need", build=build_floor, **shared),
            Peer("again", "the floor, once more", "what this machine cannot tell apart", **shared)]


def ours(path):
    binary = path or os.path.join(ROOT, "target", "release", "sockdrawer")

    def command(capacity):
        def argv(protocol, port, row):
            ack = ["--ack", "read"] if protocol == "acks" else []
            kept = ["--capacity", str(capacity)] if row.idle else []
            return [binary, "serve", protocol, *ack, "--loops", "1", *kept, "--listen", f"127.0.0.1:{port}"]
        return argv

    def build():
        if path is None:
            run(OURS, ["cargo", "build", "--release", "--locked", "--package", "sockdrawer-cli"], ROOT)
        elif not os.access(path, os.X_OK):
            raise PeerFailure(f"{path} is no program: give --sockdrawer one, or leave it out to build this repository's")

    # What was touched in expectation of connections must not hide: the zero is a server that expects one.
    return Peer(OURS, "sockdrawer", "`sockdrawer serve --loops 1`", () if path else ("cargo",), command(20000), build,
                lambda: output([binary, "--version"]), idle_base=command(1))


def rust_peers():
    folder = os.path.join(PEERS, "rust")
    target = os.path.join(BUILD, "rust")
    lock = os.path.join(folder, "Cargo.lock")

    def build():
        run("rust", ["cargo", "build", "--release", "--locked", "--target-dir", target], folder)

    def peer(name, title, about, program, crate):
        return Peer(name, title, about, ("cargo",), lambda protocol, port, _row: [
            os.path.join(target, "release", program), protocol, str(port)], build,
            lambda: f"{crate} {locked(lock, 'version =', f'name = {chr(34)}{crate}{chr(34)}')}, {output(['rustc', '--version'])}")

    return [peer("tokio", "tokio, multi-thread", "the work-stealing runtime", "tokio_multi_thread", "tokio"),
            peer("tokio-per-core", "tokio, one runtime per core", "`current_thread` runtimes with SO_REUSEPORT",
                 "tokio_per_core", "tokio"),
            peer("mio", "mio by hand", "readiness, one buffer for all connections", "mio_by_hand", "mio")]


def all_peers(sockdrawer=None, ranch=None):
    return [*floors(), ours(sockdrawer), *rust_peers()]


def missing(peer):
    """Why this machine cannot build it, or None."""
    tools = [tool for tool in peer.tools if not shutil.which(tool)]
    return f"{' and '.join(tools)} not found" if tools else None

"""Who is measured, and how each is built and started. A server is told its protocol and its port, and uses all CPUs that it
may: the driver gives each the same one."""
import glob
import os
import shutil
import subprocess
from dataclasses import dataclass

from .failure import PeerFailure
from .paths import BUILD, FLOOR, LOGS, PEERS, relative
from .program import built

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
    idle_base: object = None  # the command whose memory is zero, if not its own before the connections
    models: bool = False  # has the models of one connection for each process or thread, and of one at a time
    splits: bool = True  # answers what arrives in pieces
    warm_up: float = 0  # seconds under load before it is measured, for those that compile while they run


def run(name, argv, cwd, environment=None):
    """One step of a build; what it says goes to a log."""
    os.makedirs(LOGS, exist_ok=True)
    log = os.path.join(LOGS, f"build-{name}.log")
    with open(log, "w") as file:
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


def required(module, name):
    """The version of a dependency in a go.mod."""
    with open(module) as file:
        return next(line.split(f"{name} ")[1].split()[0] for line in file if f"{name} " in line)


def build_floor():
    os.makedirs(BUILD, exist_ok=True)
    for program in ("floor_epoll", "floor_models", "client"):
        run("floor", ["cc", "-O2", "-pthread", "-o", os.path.join(BUILD, program), program + ".c"], FLOOR)


def floor_command(protocol, port, row):
    if row.model:
        return [os.path.join(BUILD, "floor_models"), row.model, str(port)]
    return [os.path.join(BUILD, "floor_epoll"), protocol, str(port)]


def floors():
    shared = dict(tools=("cc",), command=floor_command, build=build_floor, models=True, splits=False,
                  version=lambda: output(["cc", "--version"]))
    return [Peer("floor", "C loop (the floor)", "epoll, and nothing that the work does not need", **shared),
            Peer("again", "the floor, once more", "what this machine cannot tell apart", **shared)]


def ours(path):
    binary = path

    def command(capacity):
        def argv(protocol, port, row):
            ack = ["--ack", "read"] if protocol == "acks" else []
            kept = ["--capacity", str(capacity)] if row.idle else []
            model = ["--model", row.model] if row.model else ["--loops", "1"]
            return [binary, "serve", protocol, *ack, *model, *kept, "--listen", f"127.0.0.1:{port}"]
        return argv

    def build():
        nonlocal binary
        if path is None:
            binary = built()
        elif not os.access(path, os.X_OK):
            raise PeerFailure(f"{path} is no program: give --sockdrawer one, or leave it out to build this repository's")

    # What was touched in expectation of connections must not hide: the zero is a server that expects one.
    return Peer(OURS, "sockdrawer", "`sockdrawer serve --loops 1`", () if path else ("cargo",), command(20000), build,
                lambda: output([binary, "--version"]) + (", given by --sockdrawer" if path else ""), idle_base=command(1), models=True)


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


def go_peers():
    folder = os.path.join(PEERS, "go")
    target = os.path.join(BUILD, "go")

    def build():
        # poll_opt is gnet's faster poller. Its gc_opt is not: it searches a table whenever a connection ends, which made short
        # connections five times as expensive. The other peer knows neither.
        run("go", ["go", "build", "-tags", "poll_opt", "-o", target + os.sep, "./..."], folder, {"GOFLAGS": "-mod=readonly"})

    def peer(name, title, about, program, version):
        return Peer(name, title, about, ("go",), lambda protocol, port, _row: [os.path.join(target, program), protocol, str(port)],
                    build, version)

    def gnet():
        return f"gnet {required(os.path.join(folder, 'go.mod'), 'gnet/v2')}, {output(['go', 'env', 'GOVERSION'])}"

    return [peer("gnet", "gnet", "`Multicore`, `ReusePort`, built with `poll_opt`", "gnet", gnet),
            peer("go-net", "Go's net package", "a goroutine for each connection", "net", lambda: output(["go", "env", "GOVERSION"]))]


def netty():
    folder = os.path.join(PEERS, "java")
    target = os.path.join(BUILD, "java")

    def build():
        run("netty", ["mvn", "--quiet", "--batch-mode", f"-Dbench.out={target}", "package"], folder)

    def version():
        with open(os.path.join(folder, "pom.xml")) as pom:
            return f"Netty {pom.read().split('<netty.version>')[1].split('<')[0]}, {output(['java', '-version'])}"

    return Peer("netty", "Netty", "native epoll, one group of loops", ("java", "mvn"), lambda protocol, port, _row: [
        "java", "-cp", f"{target}/netty.jar:{target}/lib/*", "bench.Main", protocol, str(port)], build, version, warm_up=20)


def ranch(path):
    target = os.path.join(BUILD, "ranch")
    source = os.path.abspath(path) if path else ""

    def build():
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target)
        # A source tree has the application's description in ebin, an installed one everything.
        for file in glob.glob(os.path.join(source, "ebin", "*")):
            shutil.copy(file, target)
        modules = sorted(glob.glob(os.path.join(source, "src", "*.erl")))
        if modules:
            run("ranch", ["erlc", "-I", os.path.join(source, "include"), "-o", target, *modules], source)
        if not all(os.path.exists(os.path.join(target, file)) for file in ("ranch.app", "ranch.beam")):
            raise PeerFailure(f"{source} is no ranch: give --ranch the folder with ebin/ranch.app, and src or the compiled modules")
        run("ranch", ["erlc", "-pa", target, "-o", target, os.path.join(PEERS, "erlang", "ranch_peer.erl")], source)

    def version():
        with open(os.path.join(target, "ranch.app")) as app:
            release = output(["erl", "-noinput", "-eval", 'io:put_chars(erlang:system_info(otp_release)), halt().'])
            return f"ranch {app.read().split('{vsn,')[1].split('}')[0].strip()}, Erlang/OTP {release}".replace('"', "")

    # Schedulers that spin while they wait would be counted as work.
    waits = ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"]
    return Peer("ranch", "ranch", "`{active, 100}`, schedulers that do not spin", ("erl", "erlc"), lambda protocol, port, _row: [
        "erl", *waits, "-pa", target, "-noinput", "-s", "ranch_peer", "main", "-extra", protocol, str(port)], build, version)


def all_peers(sockdrawer=None, ranch_path=None):
    return [*floors(), ours(sockdrawer), *rust_peers(), *go_peers(), netty(), ranch(ranch_path)]


def missing(peer, ranch_path):
    """Why this machine cannot build it, or None."""
    if peer.name == "ranch" and not ranch_path:
        return "no source of it was given; --ranch PATH does"
    tools = [tool for tool in peer.tools if not shutil.which(tool)]
    return f"{' and '.join(tools)} not found" if tools else None

"""Servers that scripts of ci/ run on loopback: their ports, their processes and their memory."""
import os, pathlib, socket, subprocess, sys, time

PROGRAM = os.environ.get("SOCKDRAWER", str(pathlib.Path(__file__).parent.parent / "target/release/sockdrawer"))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def listens(port):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens at {port} within 20 s")


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def tree(pid):
    return [pid] + [one for child in children(pid) for one in tree(child)]


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def serve(*words, port):
    process = subprocess.Popen([PROGRAM, "serve", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listens(port)
    return process


def private_memory(pid):
    try:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))

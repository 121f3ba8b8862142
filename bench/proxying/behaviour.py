"""What a proxy does at the edges of a connection. Both ends are here: each check has its clients and its backend."""
import os
import socket
import struct
import threading
import time
from contextlib import contextmanager

from driver.peers import OURS
from driver.server import free_port

from .proxies import spent, started, used

TIMEOUT = 5  # of each wait
MB = 1_000_000
BLOCK = os.urandom(1_000_003)  # a prime, so that what is lost or doubled does not look right
PIECE = 128 * 1024
REPEATED = memoryview(BLOCK + BLOCK[:PIECE])
STALLED, MAX_MEMORY = 200 * MB, 4 * MB
DELAY = 0.1  # that another connection may have while one stalls
AT_ONCE, AFTER_RETURN = 0.2, 0.2
IDLE = 0.02  # of a CPU


class Deviation(Exception):
    """What the proxy does in the place of what is asked."""


def send(stream, size):
    at = 0
    while at < size:
        begin = at % len(BLOCK)
        at += stream.send(REPEATED[begin:begin + min(PIECE, size - at)])


def receive(stream, size):
    """Exactly so much of what `send` sends."""
    at = 0
    while at < size:
        data = stream.recv(min(PIECE, size - at))
        if not data:
            raise Deviation(f"the end comes after {at:,} of {size:,} bytes")
        begin = at % len(BLOCK)
        if data != REPEATED[begin:begin + len(data)]:
            raise Deviation(f"another byte among {at:,} to {at + len(data):,}")
        at += len(data)


def ending(stream):
    """How it ends, with nothing before."""
    try:
        data = stream.recv(PIECE)
    except ConnectionError:
        return "reset"
    except TimeoutError:
        return "nothing"
    return "bytes" if data else "end"


def ended(stream, what):
    how = ending(stream)
    if how != "end":
        raise Deviation(f"{what} sees {how} where the end must be")


def together(*steps):
    """Each in a thread of its own; the first failure is the caller's."""
    failures = []

    def attempt(step, arguments):
        try:
            step(*arguments)
        except (Deviation, OSError) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=attempt, args=(step, arguments)) for step, *arguments in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Place:
    """A proxy, and the backend that it has or has not."""

    def __init__(self, proxy):
        self.target, self.listener, self.open = free_port(), None, []
        self.listen()
        self.server = started(proxy, self.target)

    def listen(self):
        self.listener = self.listener or socket.create_server(("127.0.0.1", self.target), backlog=128)
        self.listener.settimeout(TIMEOUT)

    def leave(self):
        if self.listener:
            self.listener.close()
            self.listener = None

    def client(self):
        client = socket.create_connection(("127.0.0.1", self.server.port), TIMEOUT)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.open.append(client)
        return client

    def pair(self):
        """Both ends of one connection, which has carried something each way. What comes in its place is another's and passed by."""
        client, token = self.client(), os.urandom(16)
        client.sendall(token)
        while True:
            backend, _ = self.listener.accept()
            backend.settimeout(TIMEOUT)
            backend.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.open.append(backend)
            try:
                if backend.recv(16, socket.MSG_WAITALL) != token:
                    continue
            except ConnectionError:
                continue
            backend.sendall(token)
            if client.recv(16, socket.MSG_WAITALL) != token:
                raise Deviation("the first answer is another one")
            return client, backend

    def close(self):
        for stream in self.open:
            stream.close()
        self.open = []

    def cpu(self, seconds, step=lambda: None):
        """Part of a CPU that it uses in this time, while the step is repeated and there is little to do."""
        before, begin = used(self.server), time.monotonic()
        while time.monotonic() < begin + seconds:
            step()
            time.sleep(0.1)
        part = spent(self.server, before) / (time.monotonic() - begin)
        if part >= IDLE:
            raise Deviation(f"it uses {part:.1%} of a CPU")
        return f"{part:.2%}"


def carries(place):
    client, backend = place.pair()
    together((send, client, 50 * MB), (receive, backend, 50 * MB), (send, backend, 100 * MB), (receive, client, 100 * MB))
    client.shutdown(socket.SHUT_WR)
    ended(backend, "the backend")
    backend.close()
    ended(client, "the client")


def half_closed(first, second, who):
    """The first is done and hears the other out, which takes its time."""
    first.shutdown(socket.SHUT_WR)
    ended(second, who)
    time.sleep(0.3)
    together((send, second, 5 * MB), (receive, first, 5 * MB))
    second.shutdown(socket.SHUT_WR)
    ended(first, "who was done first")


def half_closed_rests(place):
    for _ in range(4):
        place.pair()[0].shutdown(socket.SHUT_WR)
        place.pair()[1].shutdown(socket.SHUT_WR)
    return place.cpu(1)


def reset(by, to, who):
    by.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    by.close()
    how = ending(to)
    if how != "reset":
        raise Deviation(f"{who} sees {'an orderly end' if how == 'end' else how}")


def stalls(place):
    """One client reads nothing of what its backend has for it, and reads all of it later; the others ask and are answered."""
    others = [place.pair() for _ in range(5)]
    client, backend = place.pair()
    memory, seen = place.server.memory(), []
    sender = threading.Thread(target=lambda: quietly(send, backend, STALLED), daemon=True)
    sender.start()
    time.sleep(0.5)
    slowest, last = 0, time.monotonic() + 2
    while time.monotonic() < last:
        for near, far in others:
            begin = time.monotonic()
            for one, other in ((near, far), (far, near)):
                one.sendall(b"ping")
                other.recv(4, socket.MSG_WAITALL)
            slowest = max(slowest, time.monotonic() - begin)
        seen.append(place.server.memory() - memory)
        time.sleep(0.02)
    if max(seen) >= MAX_MEMORY:
        raise Deviation(f"its memory grows by {max(seen) / MB:.1f} MB")
    if slowest >= DELAY:
        raise Deviation(f"another connection waits {slowest * 1000:.0f} ms")
    receive(client, STALLED)
    sender.join()
    return f"{max(0, max(seen)) // 1000} kB"


def quietly(step, *arguments):
    """What becomes of it sees the other end."""
    try:
        step(*arguments)
    except OSError:
        pass


def attempt(place, seconds=TIMEOUT):
    """A client's, while the backend is away: how it ends."""
    try:
        client = place.client()
    except ConnectionError:
        return "reset"  # before connect(2) has returned
    client.settimeout(seconds)
    return ending(client)


def refused(place):
    place.leave()
    begin = time.monotonic()
    how = attempt(place)
    took = time.monotonic() - begin
    said = f"{took * 1000:.0f} ms" if took < 1 else f"{took:.1f} s"
    if how not in ("reset", "end") or took >= AT_ONCE:
        raise Deviation(f"{how} after {said}")
    return f"{how} {said}"


def rests_alone(place):
    place.leave()
    return place.cpu(2, lambda: attempt(place, 0.05))


def returned(place):
    place.leave()
    attempt(place)
    place.listen()
    begin = time.monotonic()
    place.pair()
    took = time.monotonic() - begin
    if took >= AFTER_RETURN:
        raise Deviation(f"the first connection takes {took * 1000:.0f} ms")
    return f"{took * 1000:.1f} ms"


CHECKS = (
    ("50 MB up, 100 MB down", carries),
    ("client is done first", lambda place: half_closed(*place.pair(), "the backend")),
    ("backend is done first", lambda place: half_closed(*reversed(place.pair()), "the client")),
    ("half-closed, CPU", half_closed_rests),
    ("client resets", lambda place: reset(*place.pair(), "the backend")),
    ("backend resets", lambda place: reset(*reversed(place.pair()), "the client")),
    ("client stops reading", stalls),
    ("backend away, client", refused),
    ("backend away, CPU", rests_alone),
    ("backend is back", returned),
)


@contextmanager
def place_of(proxy):
    place = Place(proxy)
    try:
        yield place
    finally:
        place.close()
        place.leave()
        place.server.stop()


def observed(proxies, say):
    """A cell for each proxy and check."""
    cells = []
    for proxy in proxies:
        say(f"{proxy.name}: {len(CHECKS)} checks")
        with place_of(proxy) as place:
            for title, check in CHECKS:
                place.listen()
                try:
                    cell = {"passed": True, "said": check(place) or "ok"}
                except (Deviation, OSError) as failure:
                    cell = {"passed": False, "said": str(failure) or type(failure).__name__}
                place.close()
                cells.append({"proxy": proxy.name, "check": title, **cell})
    return cells


def cell_text(cell):
    """Others may have their reasons."""
    return cell["said"] if cell["passed"] else "FAIL" if cell["proxy"] == OURS else "differs"


def table(cells):
    """80 columns at most; what a proxy does in the place of what is asked stands below."""
    names = list(dict.fromkeys(cell["proxy"] for cell in cells))
    heads = [name.split("-") for name in names]
    lines = ["".join([f"{'':<23}", *(f"{head[0]:>11}" for head in heads)]),
             "".join([f"{'':<23}", *(f"{head[1] if len(head) > 1 else '':>11}" for head in heads)]).rstrip()]
    for title, _check in CHECKS:
        row = {cell["proxy"]: cell for cell in cells if cell["check"] == title}
        lines.append(f"{title:<23}" + "".join(f"{cell_text(row[name]):>11}" for name in names))
    failed = [f"{cell['proxy']}, {cell['check']}: {cell['said']}" for cell in cells if not cell["passed"]]
    return "\n".join([*lines, "", *failed]).rstrip()

"""What a server must answer before it is measured: who does less work than the others is not faster."""
import socket
import struct
import time

from .failure import PeerFailure

ANSWER = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
REQUEST = b"GET /test/fast HTTP/1.0\r\n\r\n"
TIMEOUT = 10


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read(self, size):
        """So many bytes, fewer only at the end of the stream."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                break
            data += more
        return data

    def expect(self, what, wanted):
        got = self.read(len(wanted))
        if got != wanted:
            raise PeerFailure(f"{what}: {wanted!r} expected, {got!r} received")

    def expect_end(self, what):
        more = self.socket.recv(64)
        if more:
            raise PeerFailure(f"{what}: the end of the stream expected, {more!r} received")


def pieces(connection, data, at):
    """Two segments, and time to read the first before the second comes: nothing tells that it was read."""
    connection.send(data[:at])
    time.sleep(0.02)
    connection.send(data[at:])


def ping(port, splits):
    with Connection(port) as connection:
        connection.send(b"Ping")
        connection.expect("one ping", b"Pong")
        connection.send(b"Ping" * 3)
        connection.expect("three pings at once", b"Pong" * 3)
        if splits:
            pieces(connection, b"PingPing", 6)
            connection.expect("a ping in two pieces", b"Pong" * 2)


def http(port, splits):
    for _ in range(2):
        with Connection(port) as connection:
            if splits:
                pieces(connection, REQUEST, 9)
            else:
                connection.send(REQUEST)
            connection.expect("a request", ANSWER)
            connection.expect_end("after the answer")
    if splits:
        with Connection(port) as connection:
            connection.send(b"GET /elsewhere HTTP/1.0\r\n\r\n")
            # Nothing, or that nothing is there.
            said = connection.read(1024)
            if said and not said.startswith(b"HTTP/1.1 404 "):
                raise PeerFailure(f"a request for something else: 404 or the end of the stream expected, {said!r} received")


def message(number, payload):
    return struct.pack("<QI", number, len(payload)) + payload


def acked(connection, what, first, last):
    """Reads acknowledgements until they cover the messages `first` to `last`, each in order and once."""
    covered = first - 1
    while covered < last:
        ack = connection.read(12)
        if len(ack) < 12:
            raise PeerFailure(f"{what}: the stream ends with {covered} acknowledged, not {last}")
        number, skipped = struct.unpack("<QI", ack)
        if covered + skipped + 1 != number or number > last:
            raise PeerFailure(f"{what}: an acknowledgement of {number} that skips {skipped} after {covered}, {last} sent")
        covered = number


def acks(port, splits):
    with Connection(port) as connection:
        connection.send(message(0, b"hello"))
        acked(connection, "one message", 0, 0)
        connection.send(b"".join(message(number, b"x" * (number % 7)) for number in range(1, 1001)))
        acked(connection, "1000 messages", 1, 1000)
        data = message(1001, b"hello") + message(1002, b"")
        pieces(connection, data, 20)
        acked(connection, "a message in two pieces", 1001, 1002)
        if splits:
            connection.send(message(1003, b"y" * 1_000_000) + message(1004, b"z"))
            acked(connection, "a message of 1,000,000 bytes", 1003, 1004)


def check(server, row):
    try:
        {"ping": ping, "http": http, "acks": acks}[row.server](server.port, server.peer.splits)
    except PeerFailure as failure:
        raise PeerFailure(f"{server.peer.name} does not do the work of {row.server}: {failure}") from None
    except OSError as error:
        raise PeerFailure(f"{server.peer.name} does not do the work of {row.server}: {error or type(error).__name__}"
                          f"{server.told()}") from None

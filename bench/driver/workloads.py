"""What is measured: the rows of the table."""
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Row:
    name: str  # in the JSON
    title: str
    workload: str  # what --only names
    server: str  # the protocol that a server is asked for
    connections: int
    operation: str  # what is counted
    model: str = ""  # of those in which a thread or process lives no longer than a connection, or there is one at a time

    @property
    def descriptors(self):
        """That each end may need: one for a connection, and what a runtime has open besides."""
        return self.connections + 1000

    @property
    def idle(self):
        return self.workload == "idle"

    @property
    def client(self):
        """What the client is asked for."""
        return "idle" if self.idle else self.server


ROWS = (
    Row("ping-64", "Ping, 64 connections", "ping", "ping", 64, "round trip"),
    Row("ping-1000", "Ping, 1,000 connections", "ping", "ping", 1000, "round trip"),
    Row("http-50", "Short connections, 50 at once", "http", "http", 50, "connection"),
    Row("acks-1", "Message stream, 1 connection", "acks", "acks", 1, "message"),
    Row("acks-8", "Message stream, 8 connections", "acks", "acks", 8, "message"),
    Row("idle-15000", "15,000 idle connections", "idle", "ping", 15000, "connection"),
    Row("fork-50", "A process for each short connection", "models", "http", 50, "connection", "fork"),
    Row("threads-50", "A thread for each short connection", "models", "http", 50, "connection", "threads"),
    Row("single-50", "One short connection at a time", "models", "http", 50, "connection", "single"),
)
WORKLOADS = tuple(dict.fromkeys(row.workload for row in ROWS))


def rows(only):
    return [row for row in ROWS if row.workload in only]


def few_rows():
    """What tells whether all works: one of each workload, and few idle connections."""
    rows = {row.workload: row for row in reversed(ROWS)}
    return [replace(row, connections=1000) if row.idle else row for row in rows.values()]

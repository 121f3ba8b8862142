#!/usr/bin/env python3
"""Of the driver: what does the work wrong is not measured, and what is written can be read."""
import json
import os
import select
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import xml.etree.ElementTree
from types import SimpleNamespace
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from driver import chart, conformance, measure, process, program, report, written
from driver.failure import Failure, PeerFailure
from driver.main import demand
from driver.process import spawn
from driver.program import listening
from driver.workloads import ROWS
from fanning.measure import CLIENT, Shape, build_client
from fanning.page import main_table, number
from loading import main as clients
from loading.measure import due_p99
from loading.tools import CLIENTS, WORKS, wrk_report
from proxying import behaviour, proxies
from proxying import main as proxying
from proxying import measure as proxying_measure
from sealing import main as sealing
from sealing import measure as sealing_measure


class Wrong:
    """A server of one answer: it reads once per connection, sends this and closes, or reads on until the client's end."""

    def __init__(self, answer, closes=True):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.answer, self.closes = answer, closes
        self.peer = SimpleNamespace(name="wrong", splits=False)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(self.answer)
                while not self.closes and connection.recv(65536):
                    pass

    def told(self):
        return ""


def written_file(folder, name):
    with open(os.path.join(folder, name)) as file:
        return file.read()


def row(name):
    return next(row for row in ROWS if row.name == name)


class Conformance(unittest.TestCase):
    def refused(self, name, answer, why, closes=True):
        with self.assertRaises(PeerFailure) as caught:
            conformance.check(Wrong(answer, closes), row(name))
        self.assertIn(why, str(caught.exception))

    def setUp(self):
        self.timeout, conformance.TIMEOUT = conformance.TIMEOUT, 1

    def tearDown(self):
        conformance.TIMEOUT = self.timeout

    def test_another_word_is_no_pong(self):
        self.refused("ping-64", b"Pang", "b'Pong' expected, b'Pang' received")

    def test_one_pong_does_not_answer_three_pings(self):
        self.refused("ping-64", b"Pong", "timed out", closes=False)

    def test_an_answer_is_57_bytes(self):
        self.assertEqual(len(conformance.ANSWER), 57)
        self.refused("http-50", conformance.ANSWER[:-1], "a request")
        self.refused("http-50", conformance.ANSWER + b"!", "the end of the stream expected, b'!' received")

    def test_a_connection_that_stays_open_is_not_closed(self):
        self.refused("http-50", conformance.ANSWER, "timed out", closes=False)

    def test_an_acknowledgement_covers_what_was_sent(self):
        self.refused("acks-1", struct.pack("<QI", 0, 1), "an acknowledgement of 0 that skips 1 after -1")
        self.refused("acks-1", struct.pack("<QI", 1, 1), "an acknowledgement of 1 that skips 1 after -1, 0 sent")
        self.refused("acks-1", struct.pack("<QI", 0, 0), "timed out", closes=False)


class Started(unittest.TestCase):
    """The servers here say what process they and their child are, and would stay for a minute."""

    def gone(self, pids):
        for pid in pids:
            try:
                descriptor = os.pidfd_open(int(pid))
            except ProcessLookupError:
                continue
            self.assertTrue(select.select([descriptor], [], [], 10)[0], f"process {pid} goes on")
            os.close(descriptor)

    def refused(self, script, why, **more):
        with self.assertRaises(Failure) as caught:
            with listening(["sh", "-c", script], None, **more):
                self.fail("it never listened")
        self.assertIn(why, str(caught.exception))

    def test_a_server_that_never_listens_is_not_waited_for(self):
        self.refused("exec sleep 60", "within 0.1 s where it listens, but nothing: sh -c", seconds=0.1)
        self.refused("printf 'listening on 127.0.0.1:'; exec sleep 60", "but 'listening on 127.0.0.1:'", seconds=0.1)
        self.refused("echo no port is free", "but 'no port is free'")
        self.refused("exit 1", "but nothing")

    def test_a_server_ends_with_all_it_started_whatever_came(self):
        script = "sleep 60 & echo listening on $$,$!; wait"
        with self.assertRaises(ZeroDivisionError):
            with listening(["sh", "-c", script], None) as (server, address):
                pids = address.split(",")
                self.assertEqual(pids[0], str(server.pid))
                raise ZeroDivisionError
        self.gone(pids)

    def test_a_server_does_not_outlive_its_driver(self):
        driver = "from driver.process import spawn; spawn(['sh', '-c', 'echo $$; exec sleep 60'], None).wait()"
        started = spawn([sys.executable, "-B", "-c", driver], None, stdout=subprocess.PIPE, text=True, cwd=os.path.dirname(os.path.abspath(__file__)))
        with started, started.stdout:
            server = started.stdout.readline().strip()
            started.send_signal(signal.SIGKILL)
            self.gone([server])


class Built(unittest.TestCase):
    def built(self, script):
        with tempfile.TemporaryDirectory() as folder:
            cargo = os.path.join(folder, "cargo")
            written.save(cargo, f"#!/bin/sh\n{script}\n")
            os.chmod(cargo, 0o755)
            with mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
                return program.built()

    def test_cargo_says_where_the_program_is(self):
        lines = '{"reason":"compiler-artifact","executable":null}\n{"reason":"compiler-artifact","executable":"/a b/x"}\n{"reason":"build-finished"}'
        self.assertEqual(self.built(f"cat <<'.'\n{lines}\n."), "/a b/x")

    def test_what_does_not_build_is_told(self):
        for script in ("exit 1", 'echo \'{"reason":"build-finished"}\''):
            with self.assertRaises(Failure):
                self.built(script)


class Told(unittest.TestCase):
    def test_a_thread_that_has_ended_hides_no_other(self):
        with mock.patch("glob.glob", return_value=["/proc/self/task/0/comm", "/proc/self/comm"]):
            ended, other = process.of_threads(os.getpid(), "comm")
        self.assertTrue(not ended and other)

    def test_what_a_row_needs_and_the_machine_lacks_is_told(self):
        with mock.patch("driver.main.raise_descriptors", return_value=2000), mock.patch("driver.main.cpus"):
            demand([row("threads-50")])
            with self.assertRaises(Failure) as caught:
                demand(ROWS)
        self.assertIn("2000 open files, the row '15,000 idle connections' needs 16000", str(caught.exception))


TEXTS = 4


class Forging:
    """A broker of one subscriber and one publisher, which makes of all that is published what it is told to."""

    def __init__(self, forge, piece, nats):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.forge, self.piece, self.nats = forge, piece, nats
        threading.Thread(target=self.serve, daemon=True).start()

    def opened(self, questions):
        connection, _ = self.listener.accept()
        if self.nats:
            connection.sendall(b"INFO {}\r\n")
        for _ in range(questions):
            asked = connection.recv(4096)
            connection.sendall(b"PONG\r\n" if self.nats else b"OK\n" if b"SUB" in asked else b"PONG\n")
        return connection

    def serve(self):
        with self.listener, self.opened(2) as subscriber, self.opened(1) as publisher:
            subscriber.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines = publisher.makefile("rb")
            texts = [lines.readline() for _ in range(TEXTS * (1 + self.nats))]
            messages = [b"MSG fan 1 31\r\n" + text for text in texts[1::2]] if self.nats else [b"MSG" + text[3:] for text in texts]
            sent = self.forge(messages)
            try:
                for at in range(0, len(sent), self.piece):
                    subscriber.sendall(sent[at:at + self.piece])
            except ConnectionError:
                pass  # what is wrong is read no further


class Fanout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        build_client()

    def found(self, forge, piece=1000, nats=False):
        broker = Forging(forge, piece, nats)
        argv = [CLIENT, "nats" if nats else "lines", str(broker.port), "1", "0", str(TEXTS), "0", "20"]
        client = subprocess.run(argv, input=b"go\n", capture_output=True, timeout=60)
        result = json.loads(client.stdout.splitlines()[1])
        return tuple(result[key] for key in ("delivered", "lost", "disorder", "wrong", "closed"))

    def test_what_comes_as_it_must_is_counted_however_it_is_cut(self):
        for piece in (1, 7, 1000):
            self.assertEqual(self.found(b"".join, piece), (TEXTS, 0, 0, 0, 0))

    def test_what_is_lost_doubled_late_or_wrong_is_told_apart(self):
        for piece in (1, 17, 1000):
            self.assertEqual(self.found(lambda m: m[0] + m[2] + m[3], piece), (3, 1, 0, 0, 0))
            self.assertEqual(self.found(lambda m: m[0] + m[0] + m[1] + m[2] + m[3], piece), (4, 0, 1, 0, 0))
            self.assertEqual(self.found(lambda m: m[1] + m[0] + m[2] + m[3], piece), (3, 1, 1, 0, 0))
            self.assertEqual(self.found(lambda m: m[0] + m[1], piece), (2, 2, 0, 0, 1))
            delivered, lost, disorder, wrong, closed = self.found(lambda m: m[0] + m[1][:-2] + b"?" + m[1][-1:] + m[2] + m[3], piece)
            self.assertEqual((delivered, lost, disorder, closed), (1, 3, 0, 0))
            self.assertGreater(wrong, 0)

    def test_a_ping_between_messages_is_none_of_them(self):
        for piece in (1, 5, 1000):
            self.assertEqual(self.found(b"PING\r\n".join, piece, nats=True), (TEXTS, 0, 0, 0, 0))
            self.assertEqual(self.found(lambda m: b"PING\r\n" + m[0] + m[3], piece, nats=True), (2, 2, 0, 0, 0))

    def test_a_table_fits_80_columns(self):
        run = {key: 1e9 for key in ("cpu_ns", "p50_ms", "p99_ms", "late_ms", "after_ms", "grown_bytes")}
        run.update(delivered=600_000_000, lost=599_999_999)
        lines = list(main_table(Shape("paced", 10_000, 60_000, 1_000, 0), {"sockdrawer": [run]}))
        self.assertTrue(all(len(line) <= 80 for line in lines), lines)
        self.assertEqual([number(value, 2) for value in (0, 1.234, 12.34, 123.4, 12_345, 123_456, 1_234_567)],
                         ["0.00", "1.23", "12.3", "123", "12.3k", "123k", "1.2M"])


def figure(cost, floor):
    return {"cost": cost, "floor": floor, "rate": 1000.0, "p99_us": None}


def results():
    rounds = {"floor": [figure(2.0, 2.0), figure(4.0, 4.0), figure(4.0, 4.0)], "sockdrawer": [figure(2.2, 2.0), figure(4.0, 4.0)],
              "ranch": [figure(20.0, 2.0), figure(28.0, 4.0)]}
    rows = [{"name": row.name, "title": row.title, "operation": row.operation, "idle": row.idle, "model": row.model,
             "servers": measure.summary(row, rounds)} for row in ROWS]
    peers = [{"name": name, "title": name, "about": "<&>", "version": "1"} for name in rounds]
    machine = {"cpu": "a <CPU>", "cores": 2, "memory_bytes": 2**30, "kernel": "6", "architecture": "x86_64", "commit": "abc"}
    return {"date": "2026-01-01", "machine": machine, "rounds": 2, "seconds": 3.0, "peers": peers, "skipped": [], "failures": [],
            "rows": rows}


class Written(unittest.TestCase):
    def test_a_ratio_is_to_the_floor_around_it(self):
        ratio = results()["rows"][0]["servers"]["sockdrawer"]["ratio"]
        self.assertEqual((ratio["min"], ratio["median"], ratio["max"]), (1.0, 1.05, 1.1))

    def test_idle_memory_has_no_ratio(self):
        idle = next(row for row in results()["rows"] if row["idle"])
        self.assertIsNone(idle["servers"]["sockdrawer"]["ratio"])

    def test_the_chart_is_xml_and_has_every_bar(self):
        svg = chart.chart(results())
        root = xml.etree.ElementTree.fromstring(svg)
        bars = [shape for shape in root if shape.tag.endswith("rect")]
        self.assertEqual(len(bars), 2 * sum(not row.model for row in ROWS))
        self.assertTrue(all(0 <= float(bar.get("width")) <= chart.BAR for bar in bars))

    def test_the_table_has_every_row_and_each_server(self):
        text = report.markdown(results())
        for row in ROWS:
            section = text.split(f"### {row.title}\n")[1].split("###")[0]
            self.assertEqual(section.count("\n| "), 5)  # head, line, three servers
        self.assertIn("| **sockdrawer** | 2.20 / 3.10 / 4.00 | 1.000 / 1.050 / 1.100 |", text)

    def test_a_page_has_what_is_written_between_two_lines_and_keeps_the_rest(self):
        begin = "<!-- x --publish writes from here -->"
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            written.save(page, f"before\n{begin}\nold\n{written.END}\nafter\n")
            written.publish(page, "x", "new\n")
            with open(page) as file:
                self.assertEqual(file.read(), f"before\n{begin}\n\nnew\n\n{written.END}\nafter\n")
            with self.assertRaises(Failure):
                written.publish(page, "y", "new\n")


class Turned(socketserver.BaseRequestHandler):
    """It sends back what comes, and after so many bytes other ones, or fewer."""

    def handle(self):
        seen = 0
        while data := self.request.recv(65536):
            self.request.sendall(data if seen + len(data) <= 100_000 else self.server.wrong(data))
            seen += len(data)


class Proxied(unittest.TestCase):
    def load(self, wrong, *asked):
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Turned) as server:
            server.wrong, server.daemon_threads = wrong, True
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            what, connections, count = asked
            client = os.path.join(proxying_measure.BUILD, "proxying-client")
            done = subprocess.run([client, what, str(server.server_address[1]), connections, count], capture_output=True, text=True, timeout=20)
            server.shutdown()
        return done.returncode, done.stdout or done.stderr

    def test_a_client_finds_what_is_wrong_or_missing(self):
        proxies.build_ends()
        flipped = lambda data: data[:-1] + bytes([data[-1] ^ 1])
        self.assertIn('"done":200000,', self.load(lambda data: data, "bulk", "2", "200000")[1])
        self.assertIn('"done":2000,', self.load(lambda data: data, "requests", "2", "2000")[1])
        for what, count in (("bulk", "200000"), ("requests", "4000")):
            self.assertEqual(self.load(flipped, what, "1", count)[0], 2)
        self.assertEqual(self.load(lambda data: b"", "bulk", "1", "150000"), (2, "the end before all has come back\n"))
        self.assertEqual(self.load(lambda data: data + b"x", "requests", "1", "4000"), (2, "more than the answer\n"))

    def test_behaviour_finds_a_changed_byte_and_an_early_end(self):
        for sent, why in ((behaviour.BLOCK[:99] + bytes([behaviour.BLOCK[99] ^ 1]), "another byte"), (behaviour.BLOCK[:99], "the end comes")):
            near, far = socket.socketpair()
            with near, far:
                near.sendall(sent)
                near.close()
                with self.assertRaises(behaviour.Deviation) as caught:
                    behaviour.receive(far, 100)
                self.assertIn(why, str(caught.exception))

    def test_a_ratio_is_to_the_variant_that_costs_least_in_the_same_round(self):
        costs = {"haproxy": (9, 9, 9), "haproxy-splice": (2, 4, 8), "nginx": (4, 6, 8)}
        rounds = {name: [{"cost": cost, "rate": 1000.0} for cost in values] for name, values in costs.items()}
        found = proxying_measure.summary(rounds, ("haproxy", "tokio"))
        self.assertEqual(found["nginx"]["ratios"], {"haproxy": {"to": "haproxy-splice", "min": 1.0, "median": 1.5, "max": 2.0}})
        for row in proxying_measure.ROWS:
            text = proxying.table({"title": row.title, "unit": row.unit, "rate": row.rate, "proxies": found})
            self.assertLessEqual(max(map(len, text.splitlines())), 80)

    def test_a_failed_check_is_told_and_fits(self):
        cells = [{"proxy": proxy.name, "check": title, "passed": title != "client resets", "said": "reset 10 ms"}
                 for proxy in proxies.every() if proxy.behaves for title, _check in behaviour.CHECKS]
        lines = behaviour.table(cells).splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertIn("FAIL", next(line for line in lines if line.startswith("client resets")))


class Tls(unittest.TestCase):
    def test_a_ratio_is_of_one_round_and_tables_fit(self):
        found = sealing_measure.summary({name: [99_999.4, cost, 3.0] for name, cost in zip(sealing.SERVERS, (8.0, 4.0, 2.0, 2.0, 2.0, 2.0))})
        self.assertEqual(found["ours"]["ratios"]["rustls"], {"min": 1.0, "median": 1.0, "max": 2.0})
        for row in sealing_measure.ROWS:
            lines = sealing.table({"title": row.title, "unit": row.unit, "rate": row.rate, "servers": found}).splitlines()
            self.assertLessEqual(max(map(len, lines)), 80)
            self.assertIn("tokio-1", lines[-1 - ("go" in found) - ("nginx" in found)])


class Clients(unittest.TestCase):
    def test_percentiles_of_wrk_and_of_wrk2_are_read(self):
        for percentiles in (" 50%  750.00us\n     99%    1.50ms", " 50.000%  750.00us\n 99.000%    1.50ms "):
            self.assertEqual(wrk_report(f"  Latency Distribution\n    {percentiles}\n  20 requests in 1.00s, 4.00KB read\n"), (20, 750.0, 1500.0))
        with self.assertRaises(PeerFailure) as caught:
            wrk_report("unable to connect")
        self.assertIn("unable to connect", str(caught.exception))

    def test_what_waits_for_stops_is_due_evenly(self):
        waits = sorted((0.1 - at % 1 if at % 1 < 0.1 else 0 for at in (place / 10_000 for place in range(50_000))), reverse=True)
        self.assertAlmostEqual(due_p99([0.1] * 5, 5), waits[len(waits) // 100] * 1e6, delta=200)
        self.assertIsNone(due_p99([], 5))

    def test_each_client_has_a_command_for_what_it_does(self):
        with tempfile.TemporaryDirectory() as folder:
            for client in CLIENTS:
                for work in filter(client.does, WORKS):
                    words = client.command("tool", work, "http://127.0.0.1:1/", 5, folder)
                    given = " ".join(words) + "".join(written_file(folder, name) for name in os.listdir(folder))
                    for what in [str(work.connections), *(["X-Request-Id", "forty bytes"] if work.post else ["http://127.0.0.1:1/"])]:
                        self.assertIn(what, given, f"{client.name}, {work.name}")

    def test_what_the_log_has_besides_is_told_and_is_wrong_for_ours_alone(self):
        def row(ours, others, rate=0):
            run = {"logged": 1000, "per_second": 1.0, "cpu_us": 9.87, "memory_bytes": 2**20, "p50_us": 750.0, "p99_us": 1500.0, "due_p99_us": None}
            return {"title": "t", "rate": rate, "failures": [], "runs": {"sockdrawer": [{**run, "reported": ours}], "k6": [{**run, "reported": others}]}}
        self.assertIn("| k6 | 936 | 1,000 (+64) | 1 | 9.87, 9.87 | 1.00 | 750 µs | 1.50 ms |", clients.table(row(1000, 936)))
        self.assertIn("1.50 ms\\* |", clients.table(row(1000, 1000, 2000)))
        self.assertEqual([bool(clients.wrong(row(*counts))) for counts in ((1000, 936), (999, 1000), (1001, 1000))], [False, True, True])


if __name__ == "__main__":
    unittest.main()

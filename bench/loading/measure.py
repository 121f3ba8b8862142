"""A run of one client, at an nginx that was started for it and has each request in its log."""
import os
import re
import resource
import select
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

from driver.failure import PeerFailure
from driver.process import cpus, end, read, spawn
from driver.server import Server
from proxying.proxies import tool

from .tools import file

EACH, STOP = 1.0, 0.1
SPARE = 200
END_SECONDS = 20
LOOK = 0.2
NGINX = """daemon off; master_process off; pid {folder}/pid; error_log stderr emerg;
worker_rlimit_nofile {files}; events {{ worker_connections {files}; multi_accept on; }}
http {{
    log_format status "$status"; access_log {folder}/requests status buffer=1m;
    keepalive_requests 1000000000; keepalive_timeout 3600s;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    server {{ listen 127.0.0.1:{port} backlog=16384; location / {{ return 200 "{body}"; }} }}
}}
"""


def nginx(folder, connections):
    """One process on the CPU of servers."""
    def command(_protocol, port, _row):
        # With fewer than a sixteenth of them free it ends connections that rest.
        text = NGINX.format(folder=folder, files=connections * 5 // 4 + SPARE, port=port, body="x" * 100)
        return [tool("nginx"), "-e", "stderr", "-c", file(folder, "conf", text)]

    return Server(SimpleNamespace(name="nginx"), SimpleNamespace(server="http", model="", name="clients"), command)


def logged(server, folder):
    """Requests that nginx answered by 200, once it has ended in order, so that its log is whole."""
    server.process.send_signal(signal.SIGQUIT)
    try:
        server.process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        raise PeerFailure(f"nginx does not end within {END_SECONDS} s of SIGQUIT: a connection is still in use") from None
    with open(os.path.join(folder, "requests"), "rb") as log:
        return sum(line == b"200\n" for line in log)


@contextmanager
def stopping(server, wanted):
    """Stops the server for a tenth of each second, from half a second after its first connection. In the end the list has the seconds of
    each stop."""
    lengths, over = [], threading.Event()
    established = re.compile(rf"^ *\d+: \w+:{server.port:04X} \w+:\w+ 01 ", re.MULTILINE)

    def run():
        while not established.search(read("/proc/net/tcp")):
            if over.wait(0.01):
                return
        due = time.monotonic() + EACH / 2
        while not over.wait(due - time.monotonic()):
            begin = time.monotonic()
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(STOP)
            server.process.send_signal(signal.SIGCONT)
            lengths.append(time.monotonic() - begin)
            due += EACH

    thread = threading.Thread(target=run)
    if wanted:
        thread.start()
    try:
        yield lengths
    finally:
        over.set()
        if wanted:
            thread.join()


def due_p99(lengths, seconds):
    """In microseconds, of requests that are due evenly and wait for the end of a stop and nothing else: the hundredth that waits longest was
    due at the begin of the stops."""
    return (statistics.mean(lengths) - 0.01 * seconds / len(lengths)) * 1e6 if lengths else None


def paid():
    """CPU seconds of all processes that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def loaded(argv, seconds):
    """What the client printed, its CPU seconds, and its greatest memory in bytes. That is looked for while it runs: getrusage has at least
    the memory of the driver, from which it was forked."""
    before, memory, last = paid(), 0, time.monotonic() + 3 * seconds + 60
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        process = spawn(argv, cpus()[0], stdin=subprocess.DEVNULL, stdout=printed, stderr=errors)
        ended = os.pidfd_open(process.pid)
        try:
            # Seldom: the driver has one of the two CPUs for it.
            while not select.select([ended], [], [], LOOK)[0] and time.monotonic() < last:
                peak = re.search(r"VmHWM:\s+(\d+)", read(f"/proc/{process.pid}/status"))
                memory = max(memory, int(peak[1]) * 1024 if peak else 0)
        finally:
            os.close(ended)
            end(process)
        printed.seek(0)
        errors.seek(0)
        text, complaint = printed.read(), errors.read()
    if process.returncode:
        raise PeerFailure(f"{os.path.basename(argv[0])} ended with {process.returncode}: {(complaint or text).strip()[-300:]}")
    return text, paid() - before, memory


def measured(client, path, work, seconds):
    with tempfile.TemporaryDirectory() as folder:
        server = nginx(folder, work.connections)
        try:
            with stopping(server, work.stops) as stops:
                text, cpu, memory = loaded(client.command(path, work, f"http://127.0.0.1:{server.port}/", seconds, folder), seconds)
            reported, p50, p99 = client.report(text, path, folder)
            answered = logged(server, folder)
        finally:
            server.stop()
    if not answered:
        raise PeerFailure(f"{client.name} asked nothing that nginx has answered by 200: {text.strip()[-300:]}")
    return {"reported": reported, "logged": answered, "per_second": answered / seconds, "cpu_us": cpu / answered * 1e6, "memory_bytes": memory,
            "p50_us": p50, "p99_us": p99, "due_p99_us": due_p99(stops, seconds)}

"""The workloads, and the clients: the command line of each, and what of its report counts."""
import json
import os
import re
from dataclasses import dataclass

from driver.failure import PeerFailure
from driver.peers import OURS, output
from driver.written import save

MICROSECONDS = {"us": 1, "ms": 1e3, "s": 1e6, "m": 6e7}
HEADERS = {"Content-Type": "application/json", "X-Request-Id": "0123456789abcdef"}
LINES = [f"{name}: {value}" for name, value in HEADERS.items()]
BODY = '{"name": "value", "list": [1, 2, 3], "text": "forty bytes of text, more or less"}'
K6 = """import http from "k6/http";
export const options = {scenarios: {all: %s}, discardResponseBodies: true, summaryTrendStats: ["med", "p(99)"]};
export default function () { %s; }
export function handleSummary(data) { return {stdout: JSON.stringify(data.metrics)}; }
"""


@dataclass(frozen=True)
class Work:
    name: str  # what --only names
    title: str
    connections: int = 64
    rate: int = 0  # requests per second on schedule; 0: back to back
    post: bool = False  # two headers and a body
    stops: bool = False  # the server stops for a tenth of each second


WORKS = (
    Work("closed", "64 kept connections, GET back to back"),
    Work("rate-2000", "64 kept connections, 2,000 GET/s on schedule", rate=2000),
    Work("rate-10000", "64 kept connections, 10,000 GET/s on schedule", rate=10_000),
    Work("stops", "8 kept connections, 2,000 GET/s on schedule, the server stops for 100 ms of each second", 8, 2000, stops=True),
    Work("many", "10,000 kept connections, POST with two headers and a body", 10_000, post=True),
)


@dataclass(frozen=True)
class Client:
    name: str
    command: object  # from its path, workload, URL, seconds and a folder for files to arguments
    report: object  # from what it printed, its path and the folder to requests answered, p50 and p99 in µs, None where it has none
    version: str = "--version"
    closed: bool = True
    rates: bool = True
    corrected: bool = False  # at a rate a request counts from when it is due

    def does(self, work):
        return self.rates if work.rate else self.closed


def found(pattern, text):
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise PeerFailure(f"there is no {pattern} in: {text[-300:]}")
    return match


def file(folder, name, text):
    path = os.path.join(folder, name)
    save(path, text)
    return path


def ours(path, work, url, seconds, _folder):
    post = ["--body", BODY, "-H", LINES[0], "-H", LINES[1]] if work.post else []
    rate = ["--rate", str(work.rate)] if work.rate else []
    return [path, "load", url, "-c", str(work.connections), "-d", f"{seconds}s", *rate, *post, "--json", "-"]


def ours_report(text, *_files):
    result = json.loads(text)
    times = result["latency_us"]["operation"]
    return result["operations"]["ok"], times["p50"], times["p99"]


def wrk(path, work, url, seconds, folder):
    """And wrk2, to which a rate must be told."""
    headers = "".join(f"wrk.headers['{name}'] = '{value}'\n" for name, value in HEADERS.items())
    post = ["-s", file(folder, "post.lua", f"wrk.method = 'POST'\nwrk.body = '{BODY}'\n{headers}")] if work.post else []
    rate = [f"-R{work.rate}"] if work.rate else []
    return [path, "-t1", f"-c{work.connections}", f"-d{seconds}s", *rate, "--timeout", "30s", "--latency", *post, url]


def wrk_report(text, *_files):
    """wrk2 gives its percentiles with more digits."""
    p50, p99 = (found(rf"^ +{percent}(?:\.0+)?% +([\d.]+)(us|ms|s|m) *$", text) for percent in (50, 99))
    return int(found(r"^ +(\d+) requests in", text)[1]), *(float(time[1]) * MICROSECONDS[time[2]] for time in (p50, p99))


def h2load(path, work, url, seconds, folder):
    post = ["-d", file(folder, "body", BODY), "-H", LINES[0], "-H", LINES[1]] if work.post else []
    rate = [f"--rps={work.rate / work.connections}"] if work.rate else []
    return [path, "--h1", "-t1", f"-c{work.connections}", f"-D{seconds}", *rate, *post, url]


def h2load_report(text, *_files):
    return int(found(r"(\d+) succeeded", text)[1]), None, None


def oha(path, work, url, seconds, _folder):
    post = ["-m", "POST", "-d", BODY, "-H", LINES[0], "-H", LINES[1]] if work.post else []
    rate = ["-q", str(work.rate), "--latency-correction"] if work.rate else []
    return [path, "--no-tui", "--output-format", "json", "-c", str(work.connections), "-z", f"{seconds}s", "-w", *rate, *post, url]


def oha_report(text, *_files):
    result = json.loads(text)
    times = result["latencyPercentiles"]
    return result["statusCodeDistribution"].get("200", 0), times["p50"] * 1e6, times["p99"] * 1e6


def k6(path, work, url, seconds, folder):
    users = {"executor": "constant-vus", "vus": work.connections}
    if work.rate:
        users = {"executor": "constant-arrival-rate", "rate": work.rate, "preAllocatedVUs": work.connections, "maxVUs": work.connections}
    request = f'http.post("{url}", {json.dumps(BODY)}, {{headers: {json.dumps(HEADERS)}}})' if work.post else f'http.get("{url}")'
    script = K6 % (json.dumps({**users, "duration": f"{seconds}s"}), request)
    return [path, "run", "--quiet", "--address", "", "--no-usage-report", file(folder, "k6.js", script)]


def k6_report(text, *_files):
    metrics = json.loads(text)
    times = metrics["http_req_duration"]["values"]
    return metrics["http_req_failed"]["values"]["fails"], times["med"] * 1e3, times["p(99)"] * 1e3


def vegeta(path, work, url, seconds, folder):
    most = [f"-{option}={work.connections}" for option in ("workers", "max-workers", "connections")]
    return [path, "attack", f"-targets={file(folder, 'targets', f'GET {url}')}", f"-rate={work.rate}/1s", f"-duration={seconds}s", *most,
            f"-output={folder}/vegeta"]


def vegeta_report(_text, path, folder):
    """From another run of it, which is not measured."""
    result = json.loads(output([path, "report", "-type=json", f"{folder}/vegeta"]))
    return result["status_codes"].get("200", 0), result["latencies"]["50th"] / 1e3, result["latencies"]["99th"] / 1e3


CLIENTS = (
    Client(OURS, ours, ours_report, corrected=True),
    Client("wrk", wrk, wrk_report, rates=False),
    Client("wrk2", wrk, wrk_report, closed=False, corrected=True),
    Client("h2load", h2load, h2load_report),
    Client("oha", oha, oha_report, corrected=True),
    Client("k6", k6, k6_report, "version"),
    Client("vegeta", vegeta, vegeta_report, "-version", closed=False),
)

"""Who is measured. A broker is told its port and may use the CPUs that the driver gives it."""
import os

from driver.failure import PeerFailure
from driver.paths import BUILD, PEERS, ROOT, relative
from driver.peers import OURS, Peer, locked, output, run

BROKER = os.path.join("target", "dist", "examples", "broker")
# What each speaks, if not the lines of our own example.
PROTOCOLS = {"nats": "nats", "mosquitto": "mqtt"}
# Its first PING comes two seconds after a connection, whatever is said here; the next ones not in a run.
NATS = "host: 127.0.0.1\nport: {port}\nping_interval: \"1h\"\n"
# Nothing is dropped for a queue's length; a user of its own could not read what root writes.
MOSQUITTO = "listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_queued_bytes 0\nset_tcp_nodelay true\nuser root\nlog_type error\n"


def protocol(peer):
    return PROTOCOLS.get(peer.name, "lines")


def configured(name, text, port):
    path = os.path.join(BUILD, f"{name}.conf")
    with open(path, "w") as file:
        file.write(text.format(port=port))
    return path


def ours(path):
    binary = path or os.path.join(ROOT, BROKER)

    def build():
        if not path:
            run("broker", ["cargo", "build", "--profile", "dist", "--locked", "-p", "sockdrawer", "--example", "broker"], ROOT)
        if not os.access(binary, os.X_OK):
            raise PeerFailure(f"{relative(binary)} is no program: give --sockdrawer one, or build the example broker")

    return Peer(OURS, "sockdrawer", "its example broker", () if path else ("cargo",), lambda _protocol, port, _row: [
        binary, f"127.0.0.1:{port}"], build, lambda: relative(binary))


def tokio():
    folder, target = os.path.join(PEERS, "rust"), os.path.join(BUILD, "rust")

    def build():
        run("rust", ["cargo", "build", "--release", "--locked", "--target-dir", target, "--bin", "tokio_broadcast"], folder)

    return Peer("tokio", "tokio", "a broadcast channel of 65536 for each topic", ("cargo",), lambda _protocol, port, _row: [
        os.path.join(target, "release", "tokio_broadcast"), str(port)], build,
        lambda: f"tokio {locked(os.path.join(folder, 'Cargo.lock'), 'version =', 'name = ' + chr(34) + 'tokio' + chr(34))}")


def nats():
    return Peer("nats", "NATS", "its defaults: 64 MiB and 10 s for a slow consumer", ("nats-server",), lambda _protocol, port, _row: [
        "nats-server", "-c", configured("nats", NATS, port)], None, lambda: output(["nats-server", "--version"]))


def mosquitto():
    return Peer("mosquitto", "mosquitto", "MQTT 3.1.1, QoS 0, queues without a limit", ("mosquitto",), lambda _protocol, port, _row: [
        "mosquitto", "-c", configured("mosquitto", MOSQUITTO, port)], None, lambda: output(["mosquitto", "-h"]))


def brokers(options):
    # One CPU is one loop's; with more, it is the example's own choice, or what was asked for.
    return [peer for peer in (ours(options.sockdrawer), tokio(), nats(), mosquitto()) if peer.name in options.only]

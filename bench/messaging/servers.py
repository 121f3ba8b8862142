"""Which servers there are, how each is built and started. All have one thread for connections and one CPU."""
import json
import os
import re
import shutil
from dataclasses import dataclass

from driver.paths import BUILD, PEERS
from driver.peers import output, run
from proxying.proxies import tool
from sealing.servers import CHAIN, KEY

RUST, RUST_TARGET = os.path.join(PEERS, "websocket"), os.path.join(BUILD, "websocket")
NODE, NODE_TARGET = os.path.join(RUST, "node"), os.path.join(BUILD, "websocket-node")


@dataclass
class Kind:
    name: str
    about: str
    command: object  # from what it does, its port and the row to arguments
    tool: str  # what must be on the PATH
    build: object
    version: object
    idle_base: object = None  # the command whose memory is zero, if not its own before the connections


def build_rust():
    run("websocket", ["cargo", "build", "--release", "--locked", "--target-dir", RUST_TARGET], RUST)


def build_node():
    """In a folder of its own: what npm installs is not to lie among the sources."""
    os.makedirs(NODE_TARGET, exist_ok=True)
    for name in ("package.json", "package-lock.json", "server.js"):
        shutil.copy(os.path.join(NODE, name), NODE_TARGET)
    run("websocket-node", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], NODE_TARGET)


def program(name):
    return os.path.join(RUST_TARGET, "release", name)


def newest(crate):
    """The version in the lock file that is built: axum has an older tungstenite of its own."""
    with open(os.path.join(RUST, "Cargo.lock")) as file:
        found = re.findall(rf'name = "{crate}"\nversion = "([^"]*)"', file.read())
    return max(found, key=lambda version: [int(part) for part in version.split(".")])


def rust(name, about, binary, crate, *more, **rest):
    def command(what, port, row):
        return [program(binary), what, str(port), row.layer, CHAIN, KEY, *more]

    def version():
        return f"{crate} {newest(crate)}"

    return Kind(name, about, command, "cargo", build_rust, version, **rest)


def node_command(what, port, row):
    return [tool("node"), os.path.join(NODE_TARGET, "server.js"), what, str(port), row.layer, CHAIN, KEY]


def node_version():
    with open(os.path.join(NODE, "package-lock.json")) as file:
        ws = json.load(file)["packages"]["node_modules/ws"]["version"]
    return f"ws {ws}, node {output(['node', '--version'])}"


def every():
    # What was touched in expectation of connections must not hide: the zero is a server that expects one.
    bare = rust("", "", "ours", "sockdrawer-websocket", "1").command
    return [
        rust("ours", "`WebSocket`, 1 loop, pings on", "ours", "sockdrawer-websocket", idle_base=bare),
        rust("tungstenite", "tokio-tungstenite", "tungstenite", "tokio-tungstenite"),
        rust("tungstenite+", "read buffers of 4 KiB, writes joined", "tungstenite", "tokio-tungstenite", "tuned"),
        rust("axum", "its ws", "axum_ws", "axum"),
        rust("axum+", "read buffers of 4 KiB, writes joined", "axum_ws", "axum", "tuned"),
        rust("fast", "fastwebsockets, its upgrade", "fast_websockets", "fastwebsockets"),
        rust("fast+", "no collector, no wrapper, writes joined", "fast_websockets", "fastwebsockets", "tuned"),
        Kind("ws", "with bufferutil", node_command, "node", build_node, node_version),
    ]

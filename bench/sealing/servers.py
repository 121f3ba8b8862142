"""Which servers there are, how each is built and started. All have one certificate, ECDSA with P-256, and one CPU."""
import os
from dataclasses import dataclass

from driver.paths import BUILD, OUT, PEERS
from driver.peers import locked, output, run
from driver.written import save
from proxying.proxies import tool

RUST, RUST_TARGET = os.path.join(PEERS, "tls"), os.path.join(BUILD, "tls")
GO, GO_TARGET = os.path.join(PEERS, "go"), os.path.join(BUILD, "go-tls")
FOLDER = os.path.join(OUT, "sealing")
CHAIN, KEY = os.path.join(FOLDER, "chain.pem"), os.path.join(FOLDER, "key.pem")
# It does no echo: what it answers ends with a ~ that the client waits for. With fewer than a sixteenth of its connections free it ends some that rest.
NGINX = """daemon off;
worker_processes 1;
worker_rlimit_nofile {files};
pid {folder}/nginx-{port}.pid;
error_log stderr emerg;
events {{ worker_connections {files}; multi_accept on; }}
http {{
    access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s;
    client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    ssl_certificate {chain}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;
    server {{ listen 127.0.0.1:{port} ssl backlog=4096; location / {{ return 200 "~"; }} }}
}}
"""


@dataclass
class Kind:
    name: str
    about: str
    command: object  # from what it does, its port and the row to arguments
    tool: str  # what must be on the PATH
    build: object
    version: object
    idle_base: object = None  # the command whose memory is zero, if not its own before the connections
    http: bool = False


def make_certificate():
    os.makedirs(FOLDER, exist_ok=True)
    run("certificate", ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", KEY, "-out", CHAIN,
                        "-days", "3650", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext",
                        "basicConstraints=critical,CA:FALSE"], FOLDER)


def build_rust():
    run("tls", ["cargo", "build", "--release", "--locked", "--target-dir", RUST_TARGET], RUST)


def build_go():
    run("go-tls", ["go", "build", "-o", GO_TARGET, "./tls"], GO, {"GOFLAGS": "-mod=readonly"})


def program(name):
    return os.path.join(RUST_TARGET, "release", name)


def rust(name, about, binary, crate, *more, **rest):
    def command(mode, port, _row):
        return [program(binary), mode, str(port), CHAIN, KEY, *more]

    def version():
        return f"{crate} {locked(os.path.join(RUST, 'Cargo.lock'), 'version =', f'name = {chr(34)}{crate}{chr(34)}')}"

    return Kind(name, about, command, "cargo", build_rust, version, **rest)


def nginx_command(_mode, port, row):
    path = os.path.join(FOLDER, f"nginx-{port}.conf")
    save(path, NGINX.format(folder=FOLDER, port=port, chain=CHAIN, key=KEY, files=max(1024, row.connections * 5 // 4 + 200)))
    return [tool("nginx"), "-e", "stderr", "-c", path]


def every():
    # What was touched in expectation of connections must not hide: the zero is a server that expects one.
    bare = rust("", "", "ours", "sockdrawer", "1").command
    return [
        rust("ours", "a `Layer` with `sockdrawer_tls::Server`, 1 loop", "ours", "sockdrawer-tls", idle_base=bare),
        rust("rustls", "rustls and mio, 1 thread", "plain_rustls", "rustls"),
        rust("tokio", "tokio-rustls, multi-thread", "tokio_rustls", "tokio-rustls"),
        rust("tokio-1", "tokio-rustls, current_thread", "tokio_rustls", "tokio-rustls", "current-thread"),
        Kind("go", "crypto/tls, a goroutine each", lambda mode, port, _row: [GO_TARGET, mode, str(port), CHAIN, KEY], "go", build_go,
             lambda: output(["go", "env", "GOVERSION"])),
        Kind("nginx", "http, `return 200`, 1 worker", nginx_command, "nginx", None, lambda: output([tool("nginx"), "-v"]).rpartition("/")[2],
             http=True),
    ]


def usable(kinds, say, build_servers=build_rust):
    """Those that this machine has, built."""
    make_certificate()
    found, done = [], {build_servers}
    say("building")
    build_servers()
    for kind in kinds:
        if not tool(kind.tool):
            say(f"{kind.name} is skipped: {kind.tool} not found")
            continue
        if kind.build and kind.build not in done:
            kind.build()
            done.add(kind.build)
        found.append(kind)
    return found

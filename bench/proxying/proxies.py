"""Which proxies there are, how each is built and configured: as an operator would, one thread, and nothing is logged."""
import os
import shutil
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

from driver.failure import Failure, PeerFailure
from driver.paths import BUILD, OUT, PEERS
from driver.peers import OURS, locked, output, run
from driver.program import built, listening
from driver.process import cpus, tree
from driver.server import Server
from driver.written import save

HERE = os.path.dirname(os.path.abspath(__file__))
RUST = os.path.join(PEERS, "rust")
RUST_TARGET = os.path.join(BUILD, "rust")
# Where a distribution puts it; one that is linked in needs no line.
STREAM_MODULES = ("/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib64/nginx/modules/ngx_stream_module.so")
ROW = SimpleNamespace(server="proxy", model="", name="proxy")

HAPROXY = """global
    nbthread 1
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
{more}listen proxy
    bind 127.0.0.1:{port}
    server backend 127.0.0.1:{target}
"""
NGINX = """{module}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr emerg;
events {{
    worker_connections 8192;
}}
stream {{
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        proxy_pass 127.0.0.1:{target};
        proxy_half_close on;
        proxy_connect_timeout 5s;
        proxy_timeout 1m;
    }}
}}
"""


@dataclass
class Proxy:
    name: str
    about: str
    command: object  # from its port and the backend's to arguments
    tool: str  # what must be on the PATH
    build: object = None
    version: object = None
    behaves: bool = True  # is asked for its behaviour; a variant that behaves like another is not

    @property
    def family(self):
        """What --only names and what others are compared with: its variants stand behind a dash."""
        return self.name.partition("-")[0]


def tool(name):
    """Debian keeps servers where the PATH of a user does not lead."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def configured(name, port, text):
    path = os.path.join(OUT, "proxying", f"{name}-{port}.conf")
    save(path, text)
    return path


def ours(path):
    binary = path

    def build():
        nonlocal binary
        if path is None:
            binary = built()
        elif not os.access(path, os.X_OK):
            raise Failure(f"{path} is no program: give --sockdrawer one, or leave it out to build this repository's")

    def command(port, target):
        return [binary, "serve", "proxy", "--loops", "1", "--listen", f"127.0.0.1:{port}", "--to", f"127.0.0.1:{target}"]

    about = "`serve proxy`, 1 loop" + (", given by --sockdrawer" if path else "")
    return Proxy(OURS, about, command, path or "cargo", build)


def tokios():
    def build():
        run("rust", ["cargo", "build", "--release", "--locked", "--target-dir", RUST_TARGET], RUST)

    def proxy(name, about, *buffer):
        return Proxy(name, about, lambda port, target: [os.path.join(RUST_TARGET, "release", "tokio_proxy"), f"127.0.0.1:{port}",
                                                        f"127.0.0.1:{target}", *buffer], "cargo", build,
                     lambda: f"tokio {locked(os.path.join(RUST, 'Cargo.lock'), 'version =', 'name = ' + chr(34) + 'tokio' + chr(34))}",
                     behaves=not buffer)

    return [proxy("tokio", "copy_bidirectional on a current_thread runtime, buffers of 8 KiB"),
            proxy("tokio-64k", "with buffers of 64 KiB", "65536")]


def haproxies():
    def proxy(name, about, *more, behaves=True):
        lines = "".join(f"    option {option}\n" for option in more)

        def command(port, target):
            return [tool("haproxy"), "-db", "-f", configured(name, port, HAPROXY.format(port=port, target=target, more=lines))]
        return Proxy(name, about, command, "haproxy", behaves=behaves,
                     version=lambda: output([tool("haproxy"), "-v"]).split(" ")[2])

    # splice-auto finds little to splice in what is measured here: one call in a hundred is splice(2).
    return [proxy("haproxy", "mode tcp, nbthread 1"),
            proxy("haproxy-auto", "with option splice-auto", "splice-auto", behaves=False),
            proxy("haproxy-splice", "with option splice-request and -response", "splice-request", "splice-response")]


def nginx():
    def command(port, target):
        module = next((f"load_module {path};\n" for path in STREAM_MODULES if os.path.exists(path)), "")
        folder = os.path.join(OUT, "proxying")
        text = NGINX.format(port=port, target=target, module=module, folder=folder)
        return [tool("nginx"), "-e", "stderr", "-c", configured("nginx", port, text)]

    return Proxy("nginx", "stream, 1 worker, proxy_half_close on", command, "nginx",
                 version=lambda: output([tool("nginx"), "-v"]).rpartition("/")[2])


def every(sockdrawer=None):
    return [ours(sockdrawer), *tokios(), *haproxies(), nginx()]


def usable(proxies, say):
    """Those that this machine has, built."""
    done, found = set(), []
    for proxy in proxies:
        if not tool(proxy.tool):
            say(f"{proxy.name} is skipped: {proxy.tool} not found")
            continue
        if proxy.build and proxy.build not in done:
            say(f"building {proxy.name}")
            proxy.build()
            done.add(proxy.build)
        found.append(proxy)
    return found


def build_ends():
    """Client and backend."""
    os.makedirs(BUILD, exist_ok=True)
    for name in ("client", "backend"):
        run("proxying", ["cc", "-O2", "-o", os.path.join(BUILD, f"proxying-{name}"), f"{name}.c"], HERE)


def used(server):
    """CPU seconds, user and system, of each of its processes: the clock that clock_getcpuclockid(3) gives, in nanoseconds, which has the
    threads that have ended too."""
    clocks = {}
    for pid in tree(server.process.pid):
        try:
            clocks[pid] = time.clock_gettime(~pid << 3 | 2)
        except OSError:
            pass  # it has ended meanwhile, or never was more than its name
    return clocks


def spent(server, before):
    """CPU seconds since then."""
    after = used(server)
    if before.keys() - after.keys() or server.process.poll() is not None:
        raise PeerFailure(f"a process of {server.peer.name} has ended{server.told()}")
    return sum(seconds - before.get(pid, 0) for pid, seconds in after.items())


def started(proxy, target):
    """On its CPU, listening; the backend is there already, and sees a connection that comes and goes."""
    return Server(proxy, ROW, lambda _protocol, port, _row: proxy.command(port, target))


@contextmanager
def behind(proxies, backend):
    """All of them, each in front of a backend of its own, so that none finds ports that another has used up."""
    with ExitStack() as stack:
        servers = {}
        for proxy in proxies:
            target = stack.enter_context(backend())
            servers[proxy.name] = started(proxy, target)
            stack.callback(servers[proxy.name].stop)
        yield servers


@contextmanager
def echo():
    with listening([os.path.join(BUILD, "proxying-backend")], cpus()[0]) as (_process, address):
        yield int(address.rpartition(":")[2])

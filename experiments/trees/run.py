#!/usr/bin/env python3
"""Does each request name the right parent, behind proxies and front ends with several requests at once?

A front end (nginx, HAProxy, Apache, Varnish, Squid, Caddy, Go, Node, Python, Rust) receives requests
on N connections at once, and asks a server behind it over connections that it keeps and shares. The
path of every request has a number, and the requests that the front end makes for it have the same number. So the true parents
are known from the methods, which the engine does not use. Only the front end is captured (attach).

A row is one front end and one number of connections: the number of requests behind it; how many of
them name a parent as sure, as likely and as guessed, each with the number of wrong parents; and the
share that names a parent. Then how much of the time that the front end waited for the server behind it is told as
such (idle.peer) in the request for which it waited; and which part of the requests' time is told as such,
but the front end asked nothing for them then. Last, the requests found of those sent.

  nginx       proxy_pass, a connection for each request; nginx-keep: kept connections
  haproxy     one thread, kept connections; haproxy-threads: two threads
  apache2     mod_proxy, two processes with threads that serve a request each (mpm_event)
  varnishd    nothing cached; one thread reads the request, and another one asks
  squid       as a reverse proxy, nothing cached: one thread, kept connections
  caddy       reverse_proxy, written in Go, kept connections
  *-proxy     Go's ReverseProxy, Node's http, Python's asyncio and threads, Rust's hyper on tokio:
              one request behind for each; *-tasks-*: with --tasks
  *-calls     sleeps, and asks several times, one after the other or twice at once
  php-calls   nginx and php-fpm, 32 processes that serve a request each, over FastCGI. FastCGI has no
              paths: a parent is right if it, or else its parent, has the number, and is as certain
              as the less certain of the two

Needs root and the languages and programs of the front ends; what is missing is skipped. Usage:
run.py [--connections 1,4,32,256] [--requests N] [--levels 1] [FRONT ...]; rpcprobe from $RPCPROBE
or PATH. Exit status: 0 if every request was found, no sure parent is wrong, and at most 1 % of the
likely parents in any row are wrong; else 1.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from attached import RPCPROBE, SECONDS, attached, build_go, build_rust, free_port, load, wait_for  # noqa: E402

PYTHON = [sys.executable, str(HERE / "servers/front.py")]
KINDS = ("proxy", "calls")
WRITTEN_IN = {
    "go": ["go", [str(HERE / ".cache/front")]],
    "go-tasks": ["go", [str(HERE / ".cache/front")]],
    "node": ["node", ["node", str(HERE / "servers/front.js")]],
    "node-tasks": ["node", ["node", str(HERE / "servers/front.js")]],
    "asyncio": [sys.executable, [*PYTHON, "asyncio"]],
    "asyncio-tasks": [sys.executable, [*PYTHON, "asyncio"]],
    "threads": [sys.executable, [*PYTHON, "threads"]],
    "tokio": ["cargo", [str(HERE / ".cache/tokio/release/front")]],
    "tokio-tasks": ["cargo", [str(HERE / ".cache/tokio/release/front")]],
}
PROXIES = (
    "nginx",
    "nginx-keep",
    "haproxy",
    "haproxy-threads",
    "apache2",
    "varnishd",
    "squid",
    "caddy",
)
PHP = "php-calls"
FRONTS = [*PROXIES, *(f"{name}-{kind}" for name in WRITTEN_IN for kind in KINDS), PHP]
STEPS = {"proxy": ["c"], "calls": ["s3,c", "c,s2,p", "c,c", "s1,p"]}
MOST_LIKELY_AND_WRONG = 0.01
NGINX = """
daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
  upstream behind {{ server 127.0.0.1:{behind}; {keep} }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{ proxy_pass http://behind; {headers} }}
  }}
}}
"""
PHP_NGINX = """
user root; daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{
      fastcgi_pass unix:{directory}/php.sock; fastcgi_read_timeout 60s;
      fastcgi_param SCRIPT_FILENAME {script};
      fastcgi_param REQUEST_METHOD $request_method; fastcgi_param REQUEST_URI $request_uri;
      fastcgi_param BEHIND {behind};
    }}
  }}
}}
"""
PHP_FPM = """
[global]
error_log={directory}/php.error
daemonize=no
[www]
user=root
group=root
listen={directory}/php.sock
listen.backlog=1024
listen.mode=0666
pm=static
pm.max_children=32
"""
HAPROXY = """
global
  maxconn 4096
  nbthread {threads}
defaults
  mode http
  timeout connect 30s
  timeout client 30s
  timeout server 30s
frontend front
  bind 127.0.0.1:{port}
  default_backend behind
backend behind
  server behind 127.0.0.1:{behind}
"""
APACHE = """
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {directory}/pid
ErrorLog {directory}/error
User www-data
Group www-data
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
ListenBacklog 1024
MaxKeepAliveRequests 0
ThreadLimit 150
ThreadsPerChild 150
StartServers 2
ServerLimit 2
MaxRequestWorkers 300
ProxyPass / http://127.0.0.1:{behind}/
"""
APACHE_MODULES = Path("/usr/lib/apache2/modules")
VARNISH = """
vcl 4.1;
backend behind {{ .host = "127.0.0.1"; .port = "{behind}"; }}
sub vcl_recv {{ return (pass); }}
"""

SQUID = """
http_port 127.0.0.1:{port} accel defaultsite=localhost no-vhost
cache_peer 127.0.0.1 parent {behind} 0 no-query originserver no-digest name=behind
cache deny all
http_access allow all
access_log none
cache_log {directory}/log
pid_filename {directory}/pid
coredump_dir {directory}
cache_effective_user proxy
max_filedescriptors 4096
"""
CADDY = """
{{
    admin off
    auto_https off
}}
:{port} {{
    bind 127.0.0.1
    reverse_proxy 127.0.0.1:{behind}
}}
"""


def options_for(front):
    """Options of `rpcprobe attach`."""
    return ["--tasks"] if "-tasks-" in front else []


def proxy_command(front, port, behind, directory):
    """The same for programs that are proxies; writes their configurations."""
    program, _, kind = front.partition("-")
    if not shutil.which(program):
        return None
    directory.mkdir()
    conf = directory / "conf"
    if program == "haproxy":
        threads = 2 if kind == "threads" else 1
        conf.write_text(HAPROXY.format(port=port, behind=behind, threads=threads))
        return ["haproxy", "-db", "-f", conf]
    if program == "apache2":
        words = {"directory": directory, "port": port, "behind": behind}
        conf.write_text(APACHE.format(modules=APACHE_MODULES, **words))
        return ["apache2", "-d", directory, "-f", conf, "-D", "FOREGROUND"]
    if program == "varnishd":
        conf.write_text(VARNISH.format(behind=behind))
        listens = ["-a", f"127.0.0.1:{port}", "-n", directory / "work"]
        # Not as another user, who may not read the folder.
        return ["varnishd", "-j", "none", "-F", "-f", conf, *listens, "-s", "default,20m"]
    if program == "squid":
        # Its worker runs as another user, and writes a log.
        shutil.chown(directory, "proxy")
        conf.write_text(SQUID.format(directory=directory, port=port, behind=behind))
        return ["squid", "-N", "-f", conf]
    if program == "caddy":
        conf.write_text(CADDY.format(port=port, behind=behind))
        return ["caddy", "run", "--adapter", "caddyfile", "--config", conf]
    keeps = kind == "keep"
    headers = 'proxy_http_version 1.1; proxy_set_header Connection "";' if keeps else ""
    text = NGINX.format(
        directory=directory,
        port=port,
        behind=behind,
        keep="keepalive 1024;" if keeps else "",
        headers=headers,
    )
    conf.write_text(text)
    return ["nginx", "-c", conf]


def php_command(port, behind, directory):
    """The same for nginx with php-fpm, which ends with it."""
    found = [shutil.which(path.name) for path in Path("/usr/sbin").glob("php-fpm*")]
    if not (found and shutil.which("nginx")):
        return None
    directory.mkdir()
    nginx, fpm = directory / "nginx.conf", directory / "fpm.conf"
    words = {"directory": directory, "port": port, "behind": behind}
    nginx.write_text(PHP_NGINX.format(script=HERE / "servers/front.php", **words))
    fpm.write_text(PHP_FPM.format(**words))
    both = 'setpriv --pdeathsig TERM "$0" -R -F -y "$1" 2>/dev/null & exec nginx -c "$2"'
    return ["sh", "-c", both, found[0], str(fpm), str(nginx)]


def command(front, port, behind, directory):
    """The command of a front end; `None` if its language or program is not installed."""
    if front == PHP:
        return php_command(port, behind, directory)
    if front in PROXIES:
        return proxy_command(front, port, behind, directory)
    name, _, kind = front.rpartition("-")
    needed, words = WRITTEN_IN[name]
    return [*words, kind, str(port), str(behind)] if shutil.which(needed) else None


def family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


def start(words):
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def capture(front, levels, connections, requests, directory):
    """Captures a front end, or several in a row, under load; returns whether there is a capture."""
    port = free_port()
    servers = [start([*PYTHON, "back", str(port)])]
    try:
        wait_for(port)
        fronts = []
        for level in range(levels):
            behind, port = port, free_port()
            words = command(front, port, behind, directory / f"front{level}")
            if words is None:
                return False
            servers.append(start(words))
            wait_for(port)
            time.sleep(0.5)  # until it has forked the processes that serve
            fronts += family(servers[-1].pid)
        steps = STEPS["calls" if front.endswith("calls") else "proxy"]
        paths = [f"/r/{number}/{steps[number % len(steps)]}" for number in range(requests)]
        with attached(fronts, directory, *options_for(front)):
            load(port, [paths[number::connections] for number in range(connections)])
        return True
    finally:
        for server in servers:
            server.terminate()
            server.wait(SECONDS)


def judged(directory):
    """[certainty or None, whether the parent is right] of each request that a front end made, and
    the number of requests it received."""
    table = str(directory / "requests.parquet")
    children = duckdb.execute(
        """with r as (select *, coalesce(regexp_extract(method, '/[rb]/(\\d+)', 1), '') as number,
             list_position(['guessed', 'likely', 'sure'], parent_certainty) as rank from read_parquet($1))
           select case when p.number <> '' then c.parent_certainty
                       when coalesce(g.number, '') = '' then null
                       when c.rank < p.rank then c.parent_certainty else p.parent_certainty end,
                  coalesce(nullif(p.number, ''), g.number) = c.number
           from r c left join r p on c.parent_request_id = p.request_id
                    left join r g on p.parent_request_id = g.request_id
           where c.client_pid is not null and c.number <> ''""",
        [table],
    ).fetchall()
    asked = duckdb.execute(
        "select count(*) from read_parquet($1) where client_pid is null and complete and method like '%/r/%'",
        [table],
    ).fetchone()
    return children, asked[0]


def waited(directory):
    """How long the requests behind the front end were waited for [ns]; how much of that is told as a
    wait for the peer in the request with the same number; how much more is told as such; and the
    latency of these requests."""
    tables = [str(directory / name) for name in ("segments.parquet", "requests.parquet")]
    waits = duckdb.execute(
        """with r as (select *, regexp_extract(method, '/[rb]/(\\d+)', 1) as number from read_parquet($2))
           select r.number, r.client_pid is not null as is_behind, s.start_ns, s.start_ns + s.duration_ns
           from read_parquet($1) s join r using (request_id)
           where s.category = 'idle.peer' and r.number <> '' and r.complete
                 and (r.client_pid is null) <> (r.server_pid is null)
           order by s.start_ns""",
        tables,
    ).fetchall()
    behind, before = {}, {}
    for number, is_behind, *span in waits:
        (behind if is_behind else before).setdefault(number, []).append(span)
    all_ns = told_ns = other_ns = 0
    for number in {*behind, *before}:
        theirs, ours = behind.get(number, []), before.get(number, [])
        all_ns += sum(end_ns - start_ns for start_ns, end_ns in theirs)
        told_ns += sum(within_ns(span, ours) for span in theirs)
        other_ns += sum(
            end_ns - start_ns - within_ns((start_ns, end_ns), joined(theirs))
            for start_ns, end_ns in ours
        )
    latency_ns = duckdb.execute(
        """select coalesce(sum(latency_ns), 0) from read_parquet($1)
           where client_pid is null and complete and method like '%/r/%'""",
        tables[1:],
    ).fetchone()
    return all_ns, told_ns, other_ns, int(latency_ns[0])


def within_ns(span, spans):
    """How much of a span lies in the others, which do not overlap [ns]."""
    return sum(max(0, min(span[1], end_ns) - max(span[0], start_ns)) for start_ns, end_ns in spans)


def joined(spans):
    """Spans, sorted by their begins, with those that overlap made one."""
    whole = []
    for start_ns, end_ns in spans:
        if whole and start_ns <= whole[-1][1]:
            whole[-1][1] = max(whole[-1][1], end_ns)
        else:
            whole.append([start_ns, end_ns])
    return whole


def told(label, children, asked, made, waits):
    def of(certainty):
        right = [bool(is_right) for told, is_right in children if told == certainty]
        return len(right), len(right) - sum(right)

    cells = [of(certainty) for certainty in ("sure", "likely", "guessed")]
    shown = "".join(f"{count:8}{wrong:7}" for count, wrong in cells)
    given = sum(count for count, _ in cells)
    share = 100 * given / max(1, len(children))
    all_ns, told_ns, other_ns, latency_ns = waits
    waited = f"{100 * told_ns / max(1, all_ns):9.1f} %{100 * other_ns / max(1, latency_ns):7.2f} %"
    print(f"{label:26}{len(children):8}{shown}{share:9.1f} %{waited}   {asked}/{made}", flush=True)
    (_, sure_wrong), (likely, likely_wrong), _ = cells
    return sure_wrong == 0 and likely_wrong <= MOST_LIKELY_AND_WRONG * likely and asked == made


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", default="1,4,32,256")
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--levels", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory for the captures")
    parser.add_argument("--again", action="store_true", help="judge the kept captures again")
    parser.add_argument("front", nargs="*", choices=[[], *FRONTS], default=[])
    options = parser.parse_args()
    build_go(HERE / "servers/go", HERE / ".cache/front")
    build_rust(HERE / "servers/tokio", HERE / ".cache/tokio")
    head = (
        "front end, connections",
        "behind",
        "sure",
        "wrong",
        "likely",
        "wrong",
        "guessed",
        "wrong",
    )
    print(
        "{:26}{:>8}{:>8}{:>7}{:>8}{:>7}{:>8}{:>7}".format(*head)
        + "    parent     waited     more   found"
    )
    good = True
    for front in options.front or FRONTS:
        for connections in map(int, options.connections.split(",")):
            with tempfile.TemporaryDirectory() as temporary:
                directory = (options.keep or Path(temporary)) / f"{front}.{connections}"
                if options.again:
                    again = [RPCPROBE, "attribute", "-q", directory / "capture"]
                    subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
                else:
                    shutil.rmtree(directory, ignore_errors=True)
                    directory.mkdir(parents=True)
                    if not capture(front, options.levels, connections, options.requests, directory):
                        print(f"{front}: skipped, what it is written in is missing")
                        break
                children, asked = judged(directory / "capture")
            waits = waited(directory / "capture")
            good &= told(f"{front}, {connections}", children, asked, options.requests, waits)
    sys.exit(not good)


main()

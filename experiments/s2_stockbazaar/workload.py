"""The workload: a server of targets/stockbazaar and its clients, in a separate network
namespace."""

from dataclasses import dataclass
from pathlib import Path

from study.capture import TARGETS

FOLDER = TARGETS / "stockbazaar"
# The short listen queue's backlog: backlog + 1 connections that are not yet accepted fit (Linux,
# tcp_conn_request).
SHORT_BACKLOG = 3
INNER = """
ip link set lo up
export PYTHONDONTWRITEBYTECODE=1
{backlog}
python={folder}/.venv/bin/python
"$python" {folder}/server.py --transport {transport} --threads {threads} --port 0 \\
    --log server.csv > said &
server=$!
trap 'kill $server' EXIT
for i in $(seq 200); do grep -qs ready said && break; sleep 0.05; done
port=$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' said)
"$python" {folder}/client.py --transport {transport} --port $port --method {method} \\
    --clients {clients} --requests {requests} --log client.csv
cat /proc/net/netstat > netstat
"""


@dataclass(frozen=True)
class System:
    """A row of the report's table."""

    name: str
    transport: str
    threads: int
    method: str
    # Reported mean response times by number of clients, in milliseconds.
    reported: tuple[float, ...]


SYSTEMS = (
    System(
        "sockets, pool of 2, Lookup", "socket", 2, "Lookup", (0.59954, 0.5592, 0.596, 0.629, 1.225)
    ),
    System(
        "sockets, pool of 6, Lookup",
        "socket",
        6,
        "Lookup",
        (0.5988, 0.51022, 0.5368, 0.544, 1.2163),
    ),
    System("gRPC, Lookup", "grpc", 6, "Lookup", (4.33, 4.34, 4.37, 4.45, 4.49)),
    System("gRPC, Trade", "grpc", 6, "Trade", (4.40, 4.46, 4.55, 4.56, 4.56)),
)


@dataclass(frozen=True)
class Arm:
    """A cell of the report's table, or an additional run with a short listen queue."""

    system: System
    clients: int
    short_backlog: bool = False

    def script(self, folder: Path, requests: int) -> str:
        """The script of the run, for a shell in `folder`."""
        folder.mkdir(parents=True)
        system = self.system
        inner = INNER.format(
            backlog=f"echo {SHORT_BACKLOG} > /proc/sys/net/core/somaxconn" * self.short_backlog,
            folder=FOLDER,
            transport=system.transport,
            threads=system.threads,
            method=system.method,
            clients=self.clients,
            requests=requests,
        )
        (folder / "inner.sh").write_text(inner)
        return f"unshare --net /bin/sh -e {folder}/inner.sh"


def listen_overflows(folder: Path) -> int:
    """Connections that the kernel dropped because a listen queue was full, in the run's
    namespace."""
    lines = [line.split() for line in (folder / "netstat").read_text().splitlines()]
    names, values = next(pair for pair in zip(lines, lines[1:]) if pair[0][0] == "TcpExt:")
    return int(values[names.index("ListenOverflows")])

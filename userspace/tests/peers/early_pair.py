"""An ONC RPC server over UDP that may reply before its client's call to send has ended, and that client.

    early_pair.py CALLS [awake]    each from a socket of its own

The server never sleeps, and has a CPU of its own, if there are two. Nor does the client, if it is to be awake.
"""

import os
import socket
import struct
import sys

PROGRAM, VERSION, PROCEDURE = 200001, 3, 1
HERE, *OTHERS = sorted(os.sched_getaffinity(0))


def awake(receive, size):
    while True:
        try:
            return receive(size, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass


def serve(server):
    os.sched_setaffinity(0, {OTHERS[0] if OTHERS else HERE})
    rest = struct.pack(">5I", 1, 0, 0, 0, 0)
    for _ in range(int(sys.argv[1])):
        call, client = awake(server.recvfrom, 1000)
        server.sendto(call[:4] + rest, client)


def ask(address, xid):
    call = struct.pack(">6I", xid, 0, 2, PROGRAM, VERSION, PROCEDURE) + bytes(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(call, address)
        reply = awake(client.recv, 100) if "awake" in sys.argv else client.recv(100)
    assert reply[:4] == call[:4], reply


def main():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    if os.fork() == 0:
        serve(server)
        os._exit(0)
    os.sched_setaffinity(0, {HERE})
    for xid in range(int(sys.argv[1])):
        ask(server.getsockname(), xid)
    os.wait()


main()

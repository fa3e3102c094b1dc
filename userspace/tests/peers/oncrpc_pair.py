"""An ONC RPC server and its client, each a process, the protocol written out by hand.

    oncrpc_pair.py ROUNDS        over TCP
    oncrpc_pair.py ROUNDS udp    over UDP; the server does not hear every fifth call at first

Each round has a null call, one with arguments, one that the server does not know, one it denies, one
whose records come in fragments, and four that are under way at once and answered in any order. The
client prints how many calls of each procedure had their reply; over UDP also how many it sent again.
"""

import collections
import os
import random
import socket
import struct
import sys

PROGRAM, VERSION = 200001, 3
NULL, ECHO, SHUFFLED, FRAGMENTS, UNKNOWN, DENIED = range(6)
LAST = 1 << 31


def receive(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def receive_record(connection):
    record = b""
    while True:
        (mark,) = struct.unpack(">I", receive(connection, 4))
        record += receive(connection, mark & ~LAST)
        if mark & LAST:
            return record


def send_record(connection, record, fragment):
    parts = [record[at : at + fragment] for at in range(0, len(record), fragment)]
    marks = [len(part) for part in parts]
    marks[-1] |= LAST
    connection.sendall(b"".join(struct.pack(">I", m) + p for m, p in zip(marks, parts)))


def reply_to(record):
    xid, _, _, _, _, procedure = struct.unpack(">6I", record[:24])
    if procedure == DENIED:
        return struct.pack(">6I", xid, 1, 1, 1, 2, 0)  # MSG_DENIED, AUTH_ERROR
    if procedure == UNKNOWN:
        return struct.pack(">6I", xid, 1, 0, 0, 0, 3)  # PROC_UNAVAIL
    return struct.pack(">6I", xid, 1, 0, 0, 0, 0) + record[40:]


def serve(listener):
    connection, _ = listener.accept()
    waiting = []
    try:
        while True:
            record = receive_record(connection)
            (procedure,) = struct.unpack(">I", record[20:24])
            if procedure == SHUFFLED:
                waiting.append(reply_to(record))
                if len(waiting) == 4:
                    random.shuffle(waiting)
                    for reply in waiting:
                        send_record(connection, reply, 1 << 20)
                    waiting = []
            else:
                fragment = 1000 if procedure == FRAGMENTS else 1 << 20
                send_record(connection, reply_to(record), fragment)
    except EOFError:
        pass


def ask(port, rounds):
    connection = socket.create_connection(("127.0.0.1", port))
    answered = collections.Counter()
    xid = random.getrandbits(31)

    def call(procedure, arguments=b"", fragment=1 << 20):
        nonlocal xid
        xid += 1
        head = struct.pack(">10I", xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0)
        send_record(connection, head + arguments, fragment)
        return xid

    def reply():
        return struct.unpack(">I", receive_record(connection)[:4])[0]

    for _ in range(rounds):
        for procedure in (NULL, ECHO, UNKNOWN, DENIED):
            assert call(procedure, b"argument" * procedure) == reply()
            answered[procedure] += 1
        assert call(FRAGMENTS, b"f" * 5000, 1500) == reply()
        answered[FRAGMENTS] += 1
        assert {call(SHUFFLED) for _ in range(4)} == {reply() for _ in range(4)}
        answered[SHUFFLED] += 4
    connection.close()
    for procedure, count in sorted(answered.items()):
        print("%d.%d.%d" % (PROGRAM, VERSION, procedure), count)


def serve_datagrams(sock):
    ignored = set()
    while True:
        record, client = sock.recvfrom(1 << 16)
        if not record:
            return
        (xid,) = struct.unpack(">I", record[:4])
        if xid % 5 == 0 and xid not in ignored:
            ignored.add(xid)
            continue
        sock.sendto(reply_to(record), client)


def ask_datagrams(port, rounds):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect(("127.0.0.1", port))
    answered, again = collections.Counter(), 0
    xid = random.getrandbits(31)
    for _ in range(rounds):
        for procedure in (NULL, ECHO, UNKNOWN, DENIED):
            xid += 1
            head = struct.pack(">10I", xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0)
            sock.settimeout(0.01 if xid % 5 == 0 else 10)
            sock.send(head + b"argument" * procedure)
            try:
                reply = sock.recv(1 << 16)
            except TimeoutError:
                again += 1
                sock.settimeout(10)
                sock.send(head + b"argument" * procedure)
                reply = sock.recv(1 << 16)
            assert struct.unpack(">I", reply[:4])[0] == xid
            answered[procedure] += 1
    sock.send(b"")
    for procedure, count in sorted(answered.items()):
        print("%d.%d.%d" % (PROGRAM, VERSION, procedure), count)
    print("again", again)


def main():
    if sys.argv[2:] == ["udp"]:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        run(lambda: serve_datagrams(sock), lambda: ask_datagrams(port_of(sock), int(sys.argv[1])))
    listener = socket.create_server(("127.0.0.1", 0))
    run(lambda: serve(listener), lambda: ask(port_of(listener), int(sys.argv[1])))


def port_of(sock):
    return sock.getsockname()[1]


def run(serving, asking):
    server = os.fork()
    if server == 0:
        serving()
        os._exit(0)
    asking()
    _, status = os.waitpid(server, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


main()

"""Sends bytes that begin like a known protocol and then are wrong, in every way, to a server that reads
them and sends as wrong ones back. Prints how many connections it made.

    hostile_pair.py CONNECTIONS SEED
"""

import os
import random
import signal
import socket
import struct
import sys

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(r, stream=None):
    kind = r.choice([0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, r.randrange(256)])
    payload = r.randbytes(r.choice([0, 1, 4, 5, 8, 40, 300, 5000]))
    length = r.choice([len(payload)] * 8 + [0, 1, 0xFFFFFF, r.getrandbits(24)])
    stream = r.choice([0, 1, 3, 5, 0x7FFFFFFF, 0xFFFFFFFF, 2]) if stream is None else stream
    head = struct.pack(">I", length)[1:] + bytes([kind, r.choice([0, 1, 4, 5, 0x2D, 0xFF])])
    return head + struct.pack(">I", stream) + payload


def http2(r):
    first = frame(r, 0) if r.random() < 0.3 else b"\0\0\0\4\0\0\0\0\0"
    return PREFACE + first + b"".join(frame(r) for _ in range(r.randrange(60)))


def http2_answer(r):
    return b"\0\0\0\4\0\0\0\0\0" + b"".join(frame(r) for _ in range(r.randrange(60)))


def oncrpc(r):
    out = b""
    for _ in range(r.randrange(1, 30)):
        body = r.randbytes(r.randrange(60))
        length = r.choice([24 + len(body)] * 5 + [0, 3, 20, 0x7FFFFFFF, r.getrandbits(31)])
        mark = length | r.choice([0, 1 << 31])
        kind = r.choice([0, 0, 1, r.getrandbits(32)])
        out += (
            struct.pack(">7I", mark, r.getrandbits(3), kind, 2, 100003, 3, r.getrandbits(32)) + body
        )
    return out


def http1(r):
    out = b""
    for _ in range(r.randrange(1, 20)):
        line = r.choice(
            [b"GET /a HTTP/1.1", b"POST /" + b"a" * r.randrange(2000), b"HTTP/1.1 200 OK"]
        )
        fields = [
            b"Content-Length: " + r.choice([b"0", b"-1", b"99999999999999999999", b"5", b"x", b""]),
            b"Transfer-Encoding: chunked",
            b"A" * r.randrange(3000),
            r.randbytes(r.randrange(80)),
        ]
        chosen = r.sample(fields, r.randrange(4))
        body = r.choice(
            [b"", b"ffffffffffffffff\r\n", b"5\r\nhello\r\n0\r\n\r\n", r.randbytes(100)]
        )
        out += b"\r\n".join([line, *chosen, b"", b""]) + body
    return out


def resp(r):
    values = [
        b"*1\r\n",
        b"*-1\r\n",
        b"*999999999\r\n",
        b"$5\r\nhello\r\n",
        b"$-1\r\n",
        b"$999999999\r\n",
    ]
    values += [b"+OK\r\n", b"%3\r\n", b"|9\r\n", b">2\r\n", b":1\r\n", b"$x\r\n", b"*\r\n", b"\r\n"]
    return b"*2\r\n$4\r\n" + b"".join(r.choice(values) for _ in range(r.randrange(200)))


def noise(r):
    return r.randbytes(r.randrange(1, 5000))


def damaged(r, data):
    data = bytearray(data)
    for _ in range(r.choice([0, 0, 1, 5, 50])):
        data[r.randrange(len(data))] = r.getrandbits(8)
    return bytes(data[: r.randrange(1, len(data) + 1)] if r.random() < 0.3 else data)


def send(r, connection, data):
    try:
        at = 0
        while at < len(data):
            step = r.choice([1, 3, 9, 24, 100, 5000])
            parts = [data[at : at + step // 2], data[at + step // 2 : at + step]]
            sent = (
                connection.sendmsg(parts)
                if r.random() < 0.3
                else connection.send(data[at : at + step])
            )
            at += sent
    except OSError:
        pass


def drain(connection, size):
    try:
        while connection.recv(size):
            pass
    except OSError:
        pass


def finish(r, connection):
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # reset by the other end
    drain(connection, r.choice([7, 512, 65536]))
    connection.close()


def serve(listener, seed):
    r = random.Random(seed)
    while True:
        connection, _ = listener.accept()
        connection.recv(r.choice([1, 9, 24, 4096]))
        make = r.choice([http2_answer, oncrpc, http1, resp, noise])
        send(r, connection, damaged(r, make(r)))
        finish(r, connection)


def main():
    connections, seed = int(sys.argv[1]), int(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    server = os.fork()
    if server == 0:
        serve(listener, seed + 1)
        os._exit(0)
    r = random.Random(seed)
    for _ in range(connections):
        connection = socket.create_connection(listener.getsockname())
        make = r.choice([http2, oncrpc, http1, resp, noise])
        send(r, connection, damaged(r, make(r)))
        finish(r, connection)
    os.kill(server, signal.SIGTERM)
    _, status = os.waitpid(server, 0)
    print(connections)
    sys.exit(os.waitstatus_to_exitcode(status) != -signal.SIGTERM)


main()

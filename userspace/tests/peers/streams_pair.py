"""Streams of ordinary protocols, none of which rpcprobe follows: what they say is made up, and how it is
laid out is theirs.

    streams_pair.py ask ROUNDS          forked servers and their client, a connection for each stream, over TCP
                                        and Unix sockets; prints how many questions had their answer
    streams_pair.py loop LOG            the same for ever, on connections that stay open; logs when
    streams_pair.py dump                writes the streams as tests/framing/host.c reads them
"""

import os
import random
import socket
import struct
import sys
import time

PAYLOADS = [
    b"",
    b"\0",
    b"\0" * 4,
    b"\0" * 5,
    b"\0" * 40,
    b"\0" * 300,
    b"\1" * 13,
    b"\1" * 600,
    bytes(range(200)),
    b"select name from people where id = 17",
    struct.pack(">9I", *range(9)),
    struct.pack("<9I", *range(9)),
    struct.pack(">4I", 0, 1, 0, 1) * 20,
    b"x" * 1500,
]


def sized(width, order, kind=None, whole=False):
    """Messages with their length before them, and perhaps a type."""
    for payload in PAYLOADS:
        body = payload if kind is None else bytes([kind]) + payload
        length = len(body) + (width if whole else 0)
        if length < 256**width:
            yield length.to_bytes(width, order) + body


def numbered(lengths):
    """Four bytes of length, then numbers: the message's, a type, a stream. The lengths are those that read
    like types of frames."""
    for number, length in enumerate(lengths):
        head = struct.pack(">IBI", length, number % 3, 1 + 2 * (number % 5))
        yield (head + bytes(length))[: 4 + length]


def postgres():
    yield struct.pack(">II", 8, 80877103)
    yield struct.pack(">II", 23, 196608) + b"user\0me\0\0xx\0\0xx"[:15]
    for sql in [b"select 1", b"begin", b"commit", b"select * from t where id = $1"]:
        yield b"Q" + struct.pack(">I", len(sql) + 5) + sql + b"\0"
        yield b"P" + struct.pack(">I", len(sql) + 8) + b"\0" + sql + b"\0\0\0"
        yield b"S" + struct.pack(">I", 4)
        yield b"D" + struct.pack(">IHI", 11, 1, 1) + b"1" + b"Z" + struct.pack(">I", 5) + b"I"


def mysql():
    for number, payload in enumerate(PAYLOADS):
        yield len(payload).to_bytes(3, "little") + bytes([number % 4]) + payload
        yield b"\0\0\0" + bytes([number % 10])


def kafka():
    body = struct.pack(">hhi", 0, 0, 256) + bytes(1532)
    yield (
        struct.pack(">i", len(body)) + body
    )  # 00 00 06 04 00 00 00 00 00 00 01: a frame with settings
    for number, payload in enumerate(PAYLOADS):
        for api in (0, 1, 3, 18):
            body = struct.pack(">hhih", api, 0, number + 256, 4) + b"test" + payload
            yield struct.pack(">i", len(body)) + body


def thrift():
    for number, payload in enumerate(PAYLOADS):
        call = struct.pack(">HHI", 0x8001, 1, 4) + b"ping" + struct.pack(">I", number) + payload
        yield struct.pack(">I", len(call) + 1) + call + b"\0"


def mongodb():
    for number, payload in enumerate(PAYLOADS):
        document = struct.pack("<i", len(payload) + 5) + payload + b"\0"
        head = struct.pack("<iiii", len(document) + 21, number, 0, 2013)
        yield head + struct.pack("<IB", 0, 0) + document


def memcached():
    for number, payload in enumerate(PAYLOADS):
        key = b"key%d" % number
        size = len(key) + len(payload)
        head = struct.pack(">BBHBBHIIQ", 0x80, number % 16, len(key), 0, 0, 0, size, number, 0)
        yield head + key + payload
        yield b"get key\r\n" if number % 2 else b"VALUE key 0 1\r\n1\r\nEND\r\n"


def tls():
    yield b"\x16\x03\x01" + struct.pack(">H", 300) + b"\1\0\1\x28\3\3" + bytes(294)
    for payload in PAYLOADS:
        yield b"\x17\x03\x03" + struct.pack(">H", len(payload) + 17) + b"\x5a" * 17 + payload
    yield b"\x15\x03\x03\0\2\1\0"


def mqtt():
    yield b"\x10\x0c\0\4MQTT\4\2\0\x3c\0\0"
    for payload in PAYLOADS:
        if len(payload) < 100:
            yield bytes([0x30, len(payload) + 3]) + b"\0\1a" + payload
    yield b"\xc0\0"


def dns():
    for number in range(30):
        name = b"\3www\7example\3com\0"
        question = struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, 0) + name + b"\0\1\0\1"
        yield struct.pack(">H", len(question)) + question


def amqp():
    yield b"AMQP\0\0\x09\1"
    for number, payload in enumerate(PAYLOADS):
        yield (
            bytes([1 + number % 3])
            + struct.pack(">HI", number % 2, len(payload))
            + payload
            + b"\xce"
        )
        yield b"\x08\0\0\0\0\0\0\xce"


def cassandra():
    for number, payload in enumerate(PAYLOADS):
        for opcode in (1, 5, 7):
            yield struct.pack(">BBhBi", 4, 0, number, opcode, len(payload)) + payload


def protobuf():
    for payload in PAYLOADS:
        size = len(payload)
        yield (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + payload


def smb():
    for number, payload in enumerate(PAYLOADS):
        head = b"\xfeSMB" + struct.pack("<HHIHHIIQ", 64, 0, 0, number % 19, 1, 0, 0, number)
        body = head + bytes(64 - len(head)) + payload
        yield struct.pack(">I", len(body)) + body


def ldap():
    for number, payload in enumerate(PAYLOADS):
        body = b"\2\1" + bytes([number]) + b"\x63\x82" + struct.pack(">H", len(payload)) + payload
        yield b"\x30\x82" + struct.pack(">H", len(body)) + body


def rsocket():
    for number, payload in enumerate(PAYLOADS):
        body = struct.pack(">IH", 1 + 2 * number, 0x1000 | number) + payload
        yield len(body).to_bytes(3, "big") + body


def calls():
    """Numbers where an ONC RPC call has its type and version."""
    for number, payload in enumerate(PAYLOADS):
        body = struct.pack(">IIII", number, 0, 2, number) + payload
        yield struct.pack(">I", len(body)) + body


def noise():
    r = random.Random(1)
    for _ in range(60):
        yield r.randbytes(r.randrange(1, 400))


def near_frames():
    """Nearly HTTP/2: frames of one kind, or on streams that do not exist."""
    for number in range(12):
        yield b"\0\0\0\4" + bytes(5)
        yield b"\0\0\6\4" + bytes(5) + b"\0\1" + bytes(4)
        yield b"\0\0\x08\6" + bytes(5) + bytes(8)
        yield b"\0\0\4\x08" + bytes(5) + struct.pack(">I", number)
        yield b"\0\0\5\0\0" + struct.pack(">I", 1) + bytes(5)
        yield b"\0\0\5\1\4" + struct.pack(">I", 2) + bytes(5)
        yield b"\0\0\0\1\4" + struct.pack(">I", 2 * number + 1)


def streams():
    yield "near_frames", near_frames()
    for width in (1, 2, 3, 4, 8):
        for order in ("big", "little"):
            for kind in (None, 0, 1, 4):
                for whole in (False, True):
                    name = f"sized-{width}-{order}-{kind}-{whole}"
                    yield name, sized(width, order, kind, whole)
    lengths = [4, 5, 6, 8, 9, 256, 257, 260, 261, 263, 264, 1028, 1540, 2308, 6657]
    yield "numbered", numbered(lengths * 3)
    yield "numbered-one", numbered([257] * 20)
    yield "numbered-settings", numbered([4, 4, 4, 4])
    yield "zeros", (bytes(size) for size in (1, 4, 9, 18, 100, 5000))
    yield "ones", (b"\1" * size for size in (1, 4, 9, 18, 100, 228059))
    for make in [
        postgres,
        mysql,
        kafka,
        thrift,
        mongodb,
        memcached,
        tls,
        mqtt,
        dns,
        amqp,
        cassandra,
    ] + [protobuf, smb, ldap, rsocket, calls, noise]:
        yield make.__name__, make()


def exchanges(messages, way):
    """Questions, which are answered by the same bytes: each a message, one in two calls, or two in one."""
    messages = [message for message in messages if message]
    if way == "pairs":
        messages = [b"".join(messages[at : at + 2]) for at in range(0, len(messages), 2)]
    for message in messages:
        half = len(message) // 2 if way == "halves" else 0
        yield [part for part in (message[:half], message[half:]) if part]


def connections():
    for name, messages in streams():
        messages = list(messages)
        for way in ("whole", "halves", "pairs"):
            yield f"{name}/{way}", list(exchanges(messages, way))


def receive(connection, count):
    """Whether so many bytes came."""
    while count:
        got = len(connection.recv(count))
        if not got:
            return False
        count -= got
    return True


def send(connection, parts):
    for part in parts:
        connection.sendall(part)


def serve(server, asked):
    """Answers every question by the same bytes."""
    while True:
        for parts in asked:
            if not receive(server, sum(map(len, parts))):
                return
            send(server, parts)


def connected(listener):
    if listener is None:
        return socket.socketpair()
    client = socket.create_connection(listener.getsockname())
    server = listener.accept()[0]
    for end in (client, server):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def started(asked, listener, former=()):
    client, server = connected(listener)
    if os.fork() == 0:
        client.close()
        for other in former:
            other.close()
        serve(server, asked)
        os._exit(0)
    server.close()
    return client


def ask(rounds):
    answered = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _, asked in connections():
            for over in (listener, None):
                client = started(asked, over)
                for _ in range(rounds):
                    for parts in asked:
                        send(client, parts)
                        answered += receive(client, sum(map(len, parts)))
                client.close()
                os.wait()
    print(answered)


def loop(log):
    listener = socket.create_server(("127.0.0.1", 0))
    open_ones = []
    for number, (name, asked) in enumerate(connections()):
        if name.endswith("/whole"):
            former = [client for client, _ in open_ones]
            open_ones.append((started(asked, listener if number % 2 else None, former), asked))
    with open(log, "w", buffering=1) as lines:
        print("pid,begin_ns,end_ns", file=lines)
        at = 0
        while True:
            begin_ns = time.monotonic_ns()
            for client, asked in open_ones:
                parts = asked[at % len(asked)]
                send(client, parts)
                receive(client, sum(map(len, parts)))
            print(f"{os.getpid()},{begin_ns},{time.monotonic_ns()}", file=lines)
            at += 1


def dump():
    """From each of the first messages on, as a capture may begin there."""
    out = sys.stdout.buffer
    for name, asked in connections():
        for first in range(min(len(asked), 12)):
            calls = [
                (who, part) for parts in asked[first:] for who in (0, 1) for part in parts if part
            ]
            named = f"{name}/{first}".encode()
            out.write(struct.pack("=I", len(named)) + named + struct.pack("=I", len(calls)))
            for who, part in calls:
                out.write(struct.pack("=II", who, len(part)) + part)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(int(sys.argv[2]))
    elif sys.argv[1] == "loop":
        loop(sys.argv[2])
    else:
        dump()

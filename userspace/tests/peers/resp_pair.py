"""A server and a client that speak RESP, as Redis does, each a process, over TCP.

    resp_pair.py FORM ROUNDS            both
    resp_pair.py serve                  prints its port; serves until its input ends
    resp_pair.py ask PORT FORM ROUNDS

FORM is arrays (with lines between them) or lines (each the word PING). The client prints how many commands of each name it sent; of those that have none, as "?". It also sends
what is no name but looks like payload, which nobody may learn.
"""

import collections
import os
import socket
import threading

import ends

SECRET = "Sesam%d"
PIPELINED = 16


def array(*words):
    head = "*%d\r\n" % len(words)
    return (head + "".join("$%d\r\n%s\r\n" % (len(word), word) for word in words)).encode()


def commands():
    """What is sent in one piece, and the names in it."""
    yield array("SET", "key", "value"), ["SET"]
    yield array("get", "GET"), ["GET"]
    yield array("PING"), ["PING"]
    yield array("JSON.SET", "key", "$", "{}"), ["JSON.SET"]
    yield array("config", "get", SECRET % 1), ["CONFIG GET"]
    yield array("CLIENT", "SETINFO", "lib-name", SECRET % 2), ["CLIENT SETINFO"]
    yield array("OBJECT", "k" * 31), ["OBJECT"]
    yield array("COMMAND"), ["COMMAND"]
    yield array("XADD", "OBJECT", "*", "GET", "a"), ["XADD"]
    yield array("EVAL", "return 1", "0"), ["EVAL"]
    transaction = [array("MULTI"), array("INCR", "a"), array("GET", "a"), array("EXEC")]
    yield b"".join(transaction), ["MULTI", "INCR", "GET", "EXEC"]
    yield array("SET", "key", "x" * 20_000), ["SET"]
    yield b"".join(array("GET", str(i)) for i in range(PIPELINED)), ["GET"] * PIPELINED
    # None is a name.
    yield array("w" * 31, "a"), ["?"]
    yield array("se cret", SECRET % 3), ["?"]
    yield array(SECRET % 4 + "%"), ["?"]
    # In a line of their own.
    yield b"PING\r\nset key value\r\n\r\nconfig get *\r\n", ["PING", "SET", "CONFIG GET"]
    yield b"GET! key\r\n", ["?"]


def serve(tell_port, stop):
    listener = socket.create_server(("127.0.0.1", 0))
    os.write(tell_port, b"%d\n" % listener.getsockname()[1])
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    while os.read(stop, 100):
        pass


def accept(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    stream, queued = connection.makefile("rb"), None
    while line := stream.readline():
        words = line.split()
        if line[:1] == b"*":
            words = [stream.read(int(stream.readline()[1:]) + 2)[:-2] for _ in range(int(line[1:]))]
        if not words:
            continue
        said, name = b"+OK\r\n", words[0].upper()
        if name == b"EXEC":
            said, queued = b"*%d\r\n" % queued + b":1\r\n" * queued, None
        elif queued is not None:
            said, queued = b"+QUEUED\r\n", queued + 1
        elif name == b"MULTI":
            queued = 0
        connection.sendall(said)


def ask(port, form, rounds):
    sent = collections.Counter()
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        stream = connection.makefile("rb")

        def send(*pieces, names):
            for piece in pieces:
                connection.sendall(piece)
            for _ in names:
                line = stream.readline()
                for _ in range(int(line[1:]) if line[:1] == b"*" else 0):
                    stream.readline()
            sent.update(names)

        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(int(rounds)):
            if form == "lines":
                send(b"PING\r\n", names=["PING"])
                continue
            for data, names in commands():
                send(data, names=names)
            # Cut anywhere, also within the name.
            data = array("CONFIG", "REWRITE")
            cut = 1 + number % (len(data) - 1)
            send(data[:cut], data[cut:], names=["CONFIG REWRITE"])
    for name, count in sorted(sent.items()):
        print(name, count)


ends.run(serve, ask)

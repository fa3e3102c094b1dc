"""A server of one thread that takes its time over each message, and more clients than it can serve at once: what they
wait for it, they wait in its sockets. Arguments of the server: by what they talk (`tcp` if none). Of the client: how
many ask, how often each, and by what. It prints the mean of what they waited, in nanoseconds.
"""

import os
import select
import socket
import threading
import time

import ends

SERVICE_S = 0.003

TRANSPORTS = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM),
    "seqpacket": (socket.AF_UNIX, socket.SOCK_SEQPACKET),
    "unixgram": (socket.AF_UNIX, socket.SOCK_DGRAM),
    "udp": (socket.AF_INET, socket.SOCK_DGRAM),
}


def at(transport, port):
    """The address of a server. Of Unix sockets it is abstract, and `port` its name."""
    return f"\0{port}" if TRANSPORTS[transport][0] == socket.AF_UNIX else ("127.0.0.1", int(port))


def named(transport):
    """A socket with an address that others know, and that address."""
    server = socket.socket(*TRANSPORTS[transport])
    is_unix = server.family == socket.AF_UNIX
    server.bind(at(transport, f"busy-{os.getpid()}" if is_unix else "0"))
    name = server.getsockname()
    return server, name.decode()[1:] if is_unix else str(name[1])


def serve(tell_port, stopped, transport="tcp"):
    server, port = named(transport)
    is_datagrams = server.type == socket.SOCK_DGRAM
    if not is_datagrams:
        server.listen(64)
    os.write(tell_port, f"{port}\n".encode())
    connections = {}
    waiting = select.poll()
    waiting.register(server, select.POLLIN)
    waiting.register(stopped, select.POLLIN | select.POLLHUP)
    while True:
        for descriptor, _ in waiting.poll():
            if descriptor == stopped:
                return
            if descriptor == server.fileno() and is_datagrams:
                message, client = server.recvfrom(100)
                time.sleep(SERVICE_S)
                server.sendto(message, client)
                continue
            if descriptor == server.fileno():
                connection, _ = server.accept()
                connections[connection.fileno()] = connection
                waiting.register(connection, select.POLLIN)
                continue
            message = connections[descriptor].recv(100)
            if message:
                time.sleep(SERVICE_S)
                connections[descriptor].sendall(message)
            else:
                waiting.unregister(descriptor)
                connections.pop(descriptor).close()


def ask(port, clients, times, transport="tcp"):
    waited_ns = []

    def client():
        with socket.socket(*TRANSPORTS[transport]) as connection:
            if transport == "unixgram":
                connection.bind("")  # an address to answer to
            connection.connect(at(transport, port))
            for _ in range(int(times)):
                begin_ns = time.monotonic_ns()
                connection.sendall(b"question")
                connection.recv(100)
                waited_ns.append(time.monotonic_ns() - begin_ns)

    threads = [threading.Thread(target=client) for _ in range(int(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(waited_ns) // len(waited_ns))


if __name__ == "__main__":
    ends.run(serve, ask)

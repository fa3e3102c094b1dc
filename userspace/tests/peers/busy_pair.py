"""A server of one thread that takes its time over each message, and more clients than it can serve at once: what they
wait for it, they wait in its sockets. Arguments of the client: how many ask, and how often each. It prints the mean of
what they waited, in nanoseconds.
"""

import os
import select
import socket
import threading
import time

import ends

SERVICE_S = 0.003


def serve(tell_port, stopped):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    os.write(tell_port, f"{listener.getsockname()[1]}\n".encode())
    connections = {}
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(stopped, select.POLLIN | select.POLLHUP)
    while True:
        for descriptor, _ in waiting.poll():
            if descriptor == stopped:
                return
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
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


def ask(port, clients, times):
    waited_ns = []

    def client():
        with socket.create_connection(("127.0.0.1", int(port))) as connection:
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

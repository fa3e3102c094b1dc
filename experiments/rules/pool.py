"""A server whose threads hand each request to a helper thread and wait for it: pool.py REQUESTS CLIENTS.

The server is a separate process. One thread accepts, one thread per connection reads and answers,
and one helper works for all. Clients are threads, each with one connection.
"""

import os
import queue
import socket
import sys
import threading


def serve(listener: socket.socket) -> None:
    work: queue.SimpleQueue = queue.SimpleQueue()

    def helper() -> None:
        while True:
            number, done = work.get()
            sum(range(number))
            done.put(number)

    def answer(connection: socket.socket) -> None:
        done: queue.SimpleQueue = queue.SimpleQueue()
        while connection.recv(100):
            work.put((2000, done))
            connection.sendall(b"%d\n" % done.get())

    threading.Thread(target=helper, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def ask(address: tuple, requests: int) -> None:
    with socket.create_connection(address) as connection:
        for _ in range(requests):
            connection.sendall(b"next\n")
            connection.recv(100)


def main() -> None:
    requests, clients = int(sys.argv[1]), int(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        serve(listener)
    address = listener.getsockname()
    each = requests // clients
    threads = [threading.Thread(target=ask, args=(address, each)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.kill(server, 15)
    os.waitpid(server, 0)


main()

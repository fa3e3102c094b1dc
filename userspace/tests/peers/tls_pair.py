"""Asks a forked server on connections encrypted with TLS 1.2. (Its anonymous ciphers need no certificate.)

tls_pair.py CONNECTIONS QUESTIONS       prints how many questions had their answer
"""

import os
import socket
import ssl
import sys


def context(purpose):
    made = ssl.SSLContext(purpose)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("aNULL:@SECLEVEL=0")
    return made


def serve(server, questions):
    with context(ssl.PROTOCOL_TLS_SERVER).wrap_socket(server, server_side=True) as server:
        for _ in range(questions):
            server.sendall(server.recv(100) * 2)


def main():
    connections, questions = map(int, sys.argv[1:])
    answered = 0
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(connections):
            client = socket.create_connection(listener.getsockname())
            server = listener.accept()[0]
            if os.fork() == 0:
                client.close()
                serve(server, questions)
                os._exit(0)
            server.close()
            with context(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(client) as client:
                for _ in range(questions):
                    client.sendall(b"question")
                    answered += client.recv(100) == b"questionquestion"
            os.wait()
    print(answered)


main()

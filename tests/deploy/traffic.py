# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs anywhere: a TCP load without an end.

    traffic.py sink PORT         takes connections and reads them empty
    traffic.py source HOST PORT  sends as fast as it may, by several connections, so that
                                 one which waits for a lost packet leaves no gap; connects
                                 again after a loss

Only the standard library: the machines have nothing else.
"""

import contextlib
import socket
import sys
import threading
import time

PIECE_BYTES = 64 * 1024
CONNECTIONS = 4


def drain(connection):
    with connection, contextlib.suppress(OSError):
        while connection.recv(PIECE_BYTES):
            pass


def sink(port):
    with socket.create_server(("", port)) as listener:
        while True:
            connection, _peer = listener.accept()
            threading.Thread(target=drain, args=(connection,), daemon=True).start()


def send(host, port):
    piece = bytes(PIECE_BYTES)
    while True:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 20) as connection:
            connection.settimeout(60)
            while True:
                connection.sendall(piece)
        time.sleep(1)


def source(host, port):
    for _ in range(CONNECTIONS - 1):
        threading.Thread(target=send, args=(host, port), daemon=True).start()
    send(host, port)


if sys.argv[1] == "sink":
    sink(int(sys.argv[2]))
else:
    source(sys.argv[2], int(sys.argv[3]))

# SPDX-License-Identifier: GPL-2.0-or-later
"""``forward.py DESCRIPTOR HOST PORT``: hand connections into a network namespace.

The listening socket was made outside, on a loopback address, and is inherited; this program
runs inside, so it connects to ports in the namespace. It ends with the namespace. At most
MAX_CONNECTIONS are served at a time; further ones wait in the listening queue.
"""

import asyncio
import contextlib
import socket
import sys

MAX_CONNECTIONS = 128
CONNECT_SECONDS = 5.0
PIECE_BYTES = 64 * 1024


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, then pass the end on."""
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def serve(listener: socket.socket, host: str, port: int) -> None:
    free = asyncio.Semaphore(MAX_CONNECTIONS)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with free:
            inner = None
            # A side that goes away mid-way is the other side's ordinary end.
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                opening = asyncio.open_connection(host, port)
                inner_reader, inner = await asyncio.wait_for(opening, CONNECT_SECONDS)
                await asyncio.gather(pump(reader, inner), pump(inner_reader, writer))
            for stream in (writer, inner):
                if stream:
                    stream.close()

    server = await asyncio.start_server(handle, sock=listener)
    async with server:
        await server.serve_forever()


def main() -> int:
    descriptor, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    listener = socket.socket(fileno=descriptor)
    asyncio.run(serve(listener, host, port))
    return 0


if __name__ == "__main__":
    sys.exit(main())

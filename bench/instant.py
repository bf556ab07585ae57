"""An HTTP server that answers every request at once with the same small JSON: the engine of the bare client.

It runs in a process of its own (`python -m bench.instant`), so that its time is not the client's. It prints its port.
"""

from __future__ import annotations

import asyncio

BODY = b'{"id": 1, "finish": "stop", "tokens": 4}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + str(len(BODY)).encode() + b"\r\n\r\n"
) + BODY


class Instant(asyncio.Protocol):
    """Answers once a request is whole; requests carry a Content-Length."""

    def __init__(self) -> None:
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, found, body = self._seen.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        if len(body) >= length:
            self._seen = body[length:]
            self._transport.write(ANSWER)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Instant, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())

"""A WebSocket server that does what the path says, and remembers how its clients took their leave."""

import asyncio
import json
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

FAREWELLS = []


async def handle(connection):
    kind, _, argument = connection.request.path.strip("/").partition("/")
    try:
        if kind == "told":
            names = ["Host", "Origin", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Request-Id"]
            headers = connection.request.headers
            await connection.send(json.dumps({name: headers.get_all(name) for name in names}))
        elif kind == "farewells":
            await connection.send(json.dumps(FAREWELLS))
            return
        elif kind == "close":
            await connection.recv()
            await connection.close(int(argument), "so it is")
        elif kind == "abort":
            await connection.recv()
            connection.transport.abort()
        elif kind == "ping":
            await (await connection.ping(b"are you there"))
            await connection.send("you are")
        elif kind == "flood":
            for number in range(int(argument)):
                await connection.send(bytes([number % 256]) * 65_536)
        async for message in connection:
            await connection.send(message)
    except ConnectionClosed:
        pass
    finally:
        await connection.wait_closed()
        FAREWELLS.append([connection.request.path, connection.close_code, connection.close_reason])


def agree(connection, offered):
    """The first of those that are spoken here; none is as good."""
    return next((name for name in offered if name in ("chat.v1", "chat.v2")), None)


async def main():
    options = {"select_subprotocol": agree, "max_size": 1 << 26, "ping_interval": None}
    async with serve(handle, "127.0.0.1", 0, **options) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        # To the end of the test, which is the end of its input.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())

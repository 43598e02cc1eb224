"""A WebSocket client, for whatever is to be done with it."""

import asyncio
import json
import os
import signal
import ssl
import sys
import time

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidHandshake, InvalidStatus

AT = sys.argv[1]


def open_at(path, scheme="ws", **options):
    options = {"max_size": 1 << 26, "ping_interval": None, "proxy": None, "open_timeout": 20, **options}
    return connect(f"{scheme}://{AT}{path}", **options)


async def refused(path, **options):
    """The answer to a handshake that is refused."""
    try:
        async with open_at(path, **options):
            raise AssertionError(f"{path} was opened")
    except InvalidStatus as refusal:
        return refusal.response


async def eventually(what, holds):
    """Waits until it does, at most ten seconds."""
    end = time.monotonic() + 10
    while not await holds():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


def run(main):
    asyncio.run(asyncio.wait_for(main(), 60))
    print("done")

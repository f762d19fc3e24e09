# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server that no client asks for anything."""

import asyncio
import sys


async def serves(seconds):
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        await asyncio.sleep(seconds)


print("ready", flush=True)
asyncio.run(serves(float(sys.argv[1])))

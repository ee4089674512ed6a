#!/usr/bin/env python3
"""A relay on the loopback interface that hands on what a client says after a while: latency.

    latency.py PORT_FILE SERVER_HOST:PORT MILLISECONDS

Writes its port into the file. Answers are not delayed, so a request costs one latency. What is sent in
one go arrives in one go: nothing limits how many bytes are on the way.
"""

import asyncio
import sys

CHUNK_BYTES = 1 << 20
CHUNKS_MAX = 64


async def hand_on(reader, writer, seconds):
    loop = asyncio.get_running_loop()
    queue = asyncio.Queue(CHUNKS_MAX)

    async def send():
        while True:
            at, chunk = await queue.get()
            left = at - loop.time()
            if left > 0:
                await asyncio.sleep(left)
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    sending = asyncio.create_task(send())
    try:
        while True:
            chunk = await reader.read(CHUNK_BYTES)
            await queue.put((loop.time() + seconds, chunk))
            if not chunk:
                break
        await sending
    except (ConnectionError, asyncio.CancelledError):
        sending.cancel()


async def main():
    port_file, server, milliseconds = sys.argv[1:]
    host, port = server.rsplit(":", 1)

    async def connected(reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(hand_on(reader, there_writer, float(milliseconds) / 1000),
                             hand_on(there_reader, writer, 0))
        writer.close()
        there_writer.close()
    relay = await asyncio.start_server(connected, "127.0.0.1", 0, limit=CHUNK_BYTES)
    with open(port_file, "w") as file:
        file.write(str(relay.sockets[0].getsockname()[1]))
    await relay.serve_forever()


asyncio.run(main())

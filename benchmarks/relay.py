"""A controller that is further away: a relay on loopback before slurmctld's port, which delivers all a while later.

For kernels without tc-netem(8). Its own work takes processor time of this machine, the same for everybody's commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

CHUNK_BYTES = 1 << 16


@contextlib.contextmanager
def far_controller(conf: Path, delay_s: float) -> Iterator[dict[str, str]]:
    """The environment of a client whose bytes to slurmctld, and back, are under way for `delay_s`, one way."""
    text = conf.read_text()
    [line] = [line for line in text.splitlines() if line.startswith("SlurmctldPort=")]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    relay = _Relay(int(line.partition("=")[2]), delay_s)
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(relay.serve, "127.0.0.1", 0), loop).result()
    far = conf.with_name("slurm-far.conf")
    far.write_text(text.replace(line, f"SlurmctldPort={server.sockets[0].getsockname()[1]}"))
    try:
        yield {"SLURM_CONF": str(far)}
    finally:
        far.unlink()
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


class _Relay:
    """Connections to one port of this machine."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._port, self._delay_s = port, delay_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: what TCP's own handshake takes there, then both directions."""
        await asyncio.sleep(2 * self._delay_s)
        there, to_there = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._carry(reader, to_there), self._carry(there, writer), return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Each chunk is on its way by itself: a second one does not wait for the first."""
        loop = asyncio.get_running_loop()
        while data := await reader.read(CHUNK_BYTES):
            loop.call_later(self._delay_s, writer.write, data)
        await asyncio.sleep(self._delay_s)
        writer.close()

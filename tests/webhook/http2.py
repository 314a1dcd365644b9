"""A receiver that speaks HTTP/2 over TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded, WindowUpdated
from h2.exceptions import ProtocolError


class Http2Receiver:
    """Says 200 with one and the same body."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.url = ""
        self.connections = 0
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = H2Connection(H2Configuration(client_side=False))
        line.initiate_connection()
        bodies: dict[int, bytes] = {}
        left: dict[int, bytes] = {}
        with suppress(ConnectionError, ProtocolError, ssl.SSLError):
            while True:
                writer.write(line.data_to_send())
                await writer.drain()
                data = await reader.read(65_536)
                if not data:
                    break
                for event in line.receive_data(data):
                    if isinstance(event, DataReceived):
                        bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data
                        line.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, StreamEnded):
                        self.bodies.append(bodies.pop(event.stream_id, b""))
                        line.send_headers(event.stream_id, [(":status", "200")])
                        left[event.stream_id] = self._answer
                    if isinstance(event, StreamEnded | WindowUpdated):
                        self._go_on(line, left)
        writer.transport.abort()

    def _go_on(self, line: H2Connection, left: dict[int, bytes]) -> None:
        """Send as much of the answers as fits into their windows."""
        for stream in list(left):
            while True:
                room = min(line.local_flow_control_window(stream), line.max_outbound_frame_size)
                part, left[stream] = left[stream][:room], left[stream][room:]
                ends = not left[stream]
                if not part and not ends:
                    break
                line.send_data(stream, part, end_stream=ends)
                if ends:
                    del left[stream]
                    break


@asynccontextmanager
async def http2_receiver(tls: ssl.SSLContext, answer: bytes = b"ok") -> AsyncIterator[Http2Receiver]:
    """A receiver, for as long as the block lasts."""
    tls.set_alpn_protocols(["h2"])
    receiver = Http2Receiver(answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=tls)
    receiver.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield receiver

"""The HTTP server beside a peer's."""

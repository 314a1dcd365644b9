"""The HTTP server: every route, its limits, and what bad requests meet."""

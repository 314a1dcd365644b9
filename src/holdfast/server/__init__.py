"""The HTTP server: doors to the engine for everyone without a database connection."""

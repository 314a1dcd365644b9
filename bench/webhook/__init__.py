"""Deliveries to HTTP endpoints beside a bare loop of the HTTP client."""

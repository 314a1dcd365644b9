"""Webhooks: messages delivered to HTTP endpoints."""

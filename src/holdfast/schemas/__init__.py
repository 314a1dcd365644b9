"""Schemas of queues, without a queue: what they say of payloads, and which changes are compatible.

Servers and clients check by this what they send. It needs the packages of the extra `schema`, so it is
imported where a queue has a schema, and not before.
"""

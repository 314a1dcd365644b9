"""Sealed messages, without a queue: envelopes, the keys to them, and what goes in.

Senders seal with a public key, consumers open with the private one. What encrypts is imported where something
is sealed or opened, and not before: the packages of the extra `secrets`.
"""

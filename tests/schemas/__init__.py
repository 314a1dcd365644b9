"""Tests of what schemas say, without a queue: definitions, payloads, compatible changes."""

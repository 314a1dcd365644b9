"""Tests of the engine: every SQL verb, its errors, its rights, its plans and what it costs."""

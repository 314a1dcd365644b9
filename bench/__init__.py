"""Benchmarks: programs that measure Holdfast beside its peers. `python -m bench.engine` is the engine's."""

"""Pipelines: ready jobs over queues, each a thin shell of reads and writes around pure transforms."""

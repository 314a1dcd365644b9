"""The data source for Spark beside its peers. `python -m bench.spark` runs it."""

"""Holdfast for Spark: the data source `holdfast`, and what it takes to run it. Needs the extra `spark`."""

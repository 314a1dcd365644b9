"""Transforms: functions from DataFrame to DataFrame, the work of the pipelines without reads and writes."""

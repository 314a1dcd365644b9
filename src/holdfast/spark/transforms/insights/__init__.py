"""Insights: ended messages to figures. Each module is a few functions from DataFrame to DataFrame."""

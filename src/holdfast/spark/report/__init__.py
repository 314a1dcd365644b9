"""The report of insights: figures in, one HTML file out. Nothing here knows of Spark or of a database."""

"""From files to a report: orders loaded with Spark, worked off, repaired, archived and looked at."""

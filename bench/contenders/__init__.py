"""The queues that are measured, behind one protocol."""

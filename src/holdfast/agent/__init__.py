"""The agent: does on services what was asked for, task by task.

Tasks are rows of the database; any number of agents share them by leases. A step may be done twice, by an
agent that was killed and by the one that goes on, or by two at once: so each leaves its mark in the same
transaction on the service as its work, and makes sure of its task before it commits.
"""

from __future__ import annotations

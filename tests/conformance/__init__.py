"""One suite for every door: the same scenarios over SQL and HTTP, synchronous and asynchronous."""

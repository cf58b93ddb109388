"""The store in memory: for tests, and for nodes that may forget."""

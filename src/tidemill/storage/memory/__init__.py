"""The store in memory: for tests, and for nodes without a database."""

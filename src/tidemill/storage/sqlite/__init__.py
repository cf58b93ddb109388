"""The store in one SQLite file: for one host, and the default."""

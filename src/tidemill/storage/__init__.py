"""Storage: ports for what the engine asks of a database, and one folder per database."""

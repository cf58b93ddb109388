"""The store in PostgreSQL. The only folder that imports the driver: it needs the extra `postgres`."""

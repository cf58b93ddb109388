"""PostgreSQL behind the storage ports. The only folder that imports the driver: it needs the extra `postgres`."""

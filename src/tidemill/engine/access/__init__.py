"""Access services: tenants, API keys and the audit log, for the server and for commands on a store."""

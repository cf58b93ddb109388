"""Access services: tenants, API keys, accounts, secrets and the audit log, for servers and commands."""

"""The tables whose rows belong to a tenant, and are deleted with it."""

TENANT_TABLES = (
    "accounts",
    "api_keys",
    "backfills",
    "dead_letters",
    "fires",
    "journal",
    "loaded_versions",
    "package_states",
    "package_versions",
    "packages",
    "part_owners",
    "parts",
    "pauses",
    "pushes",
    "recoveries",
    "requests",
    "schedules",
    "secrets",
    "sessions",
    "tickets",
    "trusted_keys",
    "variables",
    "workflow_pauses",
    "workflow_versions",
)
"""By name. Not here: runs and task runs, which are pruned before, and audit entries, which outlive their tenant."""

"""Declarations of tables: whose the rows of a table are, and when they are deleted.

Each class of a plain table declares its tables; those whose statements every database spells itself are declared here.
What is derived: row-level security, the deletion of a tenant, and tests of both schemas.
"""

from typing import Literal, NamedTuple


class DeclaredTable(NamedTuple):
    """A table, and whose its rows are."""

    name: str
    belongs_to: Literal["tenant", "run", "instance"] = "tenant"
    """A row of a tenant has a column with its name; one of a run is of its tenant, by the column `run`."""
    ends_with: Literal["tenant", "run", "retention", "nothing"] = "tenant"
    """When its rows are deleted at the latest; the runs of a tenant are pruned before the tenant is deleted."""
    tenant_column: str = "tenant"

    @property
    def condition(self) -> str | None:
        """The condition, in SQL of PostgreSQL, under which a connection sees a row; None if every one does."""
        if self.belongs_to == "instance":
            return None
        acting = "current_setting('tidemill.tenant', true)"
        of_run = f"{acting} = '*' OR tidemill.is_visible_run(run)"
        return of_run if self.belongs_to == "run" else f"{acting} IN ('*', {self.tenant_column})"


def of_tenant(*names: str) -> tuple[DeclaredTable, ...]:
    """Declare tables whose rows have a tenant, and are deleted with it."""
    return tuple(map(DeclaredTable, names))


def of_run(*names: str) -> tuple[DeclaredTable, ...]:
    """Declare tables whose rows have a run, and are deleted with it."""
    return tuple(DeclaredTable(name, "run", "run") for name in names)


def of_instance(*names: str) -> tuple[DeclaredTable, ...]:
    """Declare tables whose rows belong to no tenant."""
    return tuple(DeclaredTable(name, "instance", "nothing") for name in names)


HAND_TUNED = (
    *of_tenant("fires", "journal", "key_snapshots", "mail", "part_owners", "parts", "pushes"),
    DeclaredTable("runs", ends_with="run"),
    DeclaredTable("task_runs", ends_with="run"),
    *of_run("attempts", "notes", "outputs", "run_events"),
    *of_instance("leases", "owners", "schema_versions", "writers"),
)
"""The tables whose statements each database spells itself; `outputs` and the last two are of PostgreSQL only."""

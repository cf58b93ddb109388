"""A next release, whose schema has one more migration: `python -m tests.system.next_release server`."""

from tidemill.storage import migrations

_load_known = migrations.load_migrations


def load_migrations(package: str) -> list[migrations.Migration]:
    """Return the migrations of this release, and one of the next."""
    known = _load_known(package)
    table = "tidemill.runs" if package.endswith("postgres") else "runs"
    sql = f"ALTER TABLE {table} ADD COLUMN next_release TEXT;\n"
    return [*known, migrations.Migration(len(known) + 1, "next_release", sql)]


if __name__ == "__main__":
    migrations.load_migrations = load_migrations  # before a database reads them

    from tidemill.cli.main import main

    main()

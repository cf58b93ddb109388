"""The catalogue of PostgreSQL: whether a table can be read in order, and whether it is the one that was read before.

TRUNCATE gives a table a new file, and a sequence that is restarted gets one, too. So the files in a checkpoint tell a
table that restarted from one whose server has lost its newest rows, in a restore or with a failover.
"""

import msgspec

BEFORE_ALL_ROWS = -(2**63)

TREE = """
WITH RECURSIVE tree (relid) AS (
    SELECT {table} UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = relid
) SELECT relid FROM tree
"""
"""A table with its partitions, and with the tables that inherit from it."""

FIND_TABLE = """
SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind, c.relfilenode AS file,
       (SELECT format_type(a.atttypid, NULL) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped) AS column_type,
       pg_is_in_recovery() AS is_replica
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)
"""

FIND_SEQUENCES = f"""
SELECT DISTINCT s.seqrelid AS oid, s.seqrelid::regclass::text AS name, s.seqcache AS cache, s.seqincrement AS increment,
       s.seqcycle AS cycles, c.relfilenode AS file,
       CASE WHEN has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') THEN pg_sequence_last_value(s.seqrelid) END
       AS last_value
FROM ({TREE.format(table="$1::oid")}) AS tree
JOIN pg_attribute a ON a.attrelid = tree.relid AND a.attname = $2 AND NOT a.attisdropped
LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
JOIN pg_depend d ON
    (d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass) OR
    (d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid
     AND d.refobjsubid = a.attnum AND (d.deptype = 'i' OR (d.deptype = 'a' AND f.oid IS NULL)))
JOIN pg_sequence s ON s.seqrelid = CASE d.classid WHEN 'pg_attrdef'::regclass THEN d.refobjid ELSE d.objid END
JOIN pg_class c ON c.oid = s.seqrelid
"""
"""The sequences behind a column: those that its default names, that of an identity column, or one that it owns."""

_INTEGERS = ("smallint", "integer", "bigint")
_TABLE_KINDS = ("r", "p")


class TableFacts(msgspec.Struct, frozen=True):
    """A table as the catalogue describes it."""

    oid: int
    schema: str
    name: str
    kind: str
    file: int
    column_type: str | None
    is_replica: bool

    def find_problem(self, column: str) -> str | None:
        """Return why it cannot be read in order, and the remedy."""
        if self.kind not in _TABLE_KINDS:
            return "it is not a table; name the table that the rows are inserted into, and use columns= and where="
        if self.column_type is None:
            return f"it has no column '{column}'; name its sequence column with sequence="
        if self.column_type not in _INTEGERS:
            return f"column '{column}' is of type {self.column_type}; a sequence column holds integers"
        return None


class SequenceFacts(msgspec.Struct, frozen=True):
    """The sequence that a column takes its numbers from; the defaults are those of a column without one."""

    oid: int = 0
    name: str | None = None
    cache: int = 1
    increment: int = 1
    cycles: bool = False
    file: int = 0
    last_value: int | None = None

    def find_problem(self) -> str | None:
        """Return why its numbers are not in the order of the inserts, and the remedy."""
        if self.increment < 0:
            return f"sequence {self.name} counts downwards, so new rows have lower numbers; use one that counts upwards"
        if self.cycles:
            return (
                f"sequence {self.name} begins again after its last number, so new rows would be missed; run ALTER "
                f"SEQUENCE {self.name} NO CYCLE"
            )
        if self.cache > 1:
            return (
                f"sequence {self.name} has CACHE {self.cache}, so sessions insert numbers out of order and rows would "
                f"be missed; run ALTER SEQUENCE {self.name} CACHE 1"
            )
        return None


def find_problem(sequences: list[SequenceFacts]) -> str | None:
    """Return why the numbers of a table are not in the order of its inserts, and the remedy."""
    if len(sequences) > 1:
        names = ", ".join(str(one.name) for one in sequences)
        return f"its numbers come from several sequences ({names}), so they are not in order; use one for all of them"
    return next((problem for one in sequences if (problem := one.find_problem())), None)


class TablePosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint: the number of a row, and what tells whether it is still a number of this table."""

    number: int
    oid: int = 0
    table_file: int = 0
    sequence_file: int = 0

    @property
    def files(self) -> tuple[int, int]:
        """The files of the table and of its sequence."""
        return self.table_file, self.sequence_file


def continue_after(before: TablePosition, now: TablePosition, reached: int | None) -> tuple[int, str | None]:
    """Return the number to continue after, and what is missing.

    `now` is the table as it is, and `reached` the number of its sequence if that is behind the position.
    """
    is_same_sequence = (before.oid, before.sequence_file) == (now.oid, now.sequence_file)
    if before.oid == now.oid and before.table_file != now.table_file and not is_same_sequence:
        return BEFORE_ALL_ROWS, (
            f"it was truncated after number {before.number} was read, and its sequence has restarted, so it is read "
            "from its start"
        )
    if reached is not None and not is_same_sequence:
        return BEFORE_ALL_ROWS, (
            f"the sequence is at {reached}, and rows up to {before.number} were read; it has restarted, so the table "
            "is read from its start"
        )
    if reached is not None:
        return reached, (
            f"the sequence is at {reached}, and rows up to {before.number} were read; the server has lost its newest "
            f"rows, so reading continues after {reached}"
        )
    if before.oid not in (0, now.oid):
        return before.number, (
            f"the table was created again or restored after number {before.number} was read; reading continues after "
            "it, and rows with lower numbers that were not read are missing"
        )
    return before.number, None

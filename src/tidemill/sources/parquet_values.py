"""Values of Parquet files as Python has them: times have microseconds, and what is finer is cut off."""

from typing import Any


def to_objects(batch: Any) -> list[dict[str, Any]]:
    """Return the rows of a record batch."""
    import pyarrow  # extra: parquet

    schema = pyarrow.schema([field.with_type(_without_nanoseconds(field.type)) for field in batch.schema])
    table = pyarrow.Table.from_batches([batch])
    if schema != batch.schema:
        table = table.cast(schema, safe=False)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _without_nanoseconds(kind: Any) -> Any:
    """Return a type whose times have microseconds instead of nanoseconds, even within lists and objects."""
    import pyarrow  # extra: parquet

    types = pyarrow.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pyarrow.timestamp("us", kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pyarrow.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pyarrow.duration("us")
    if types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_without_nanoseconds(kind.value_type)))
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_without_nanoseconds(field.type)) for field in kind])
    return kind

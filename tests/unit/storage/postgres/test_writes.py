"""Statements joined to one, and rows as columns."""

from tidemill.storage.postgres.writes import join_statements, to_columns


def test_joined_statements_take_the_arguments_of_each_in_turn() -> None:
    """A parameter that a statement names twice, or above 9, is shifted as a whole."""
    first = "UPDATE a SET x = $2 WHERE id = $1 AND x <> $2"
    second = "INSERT INTO b SELECT * FROM unnest($1::text[], $10::text[])"
    assert join_statements((first, second, "DELETE FROM c WHERE id = $1")) == (
        f"WITH part_0 AS ({first}), part_1 AS (INSERT INTO b SELECT * FROM unnest($3::text[], $12::text[])), "
        "part_2 AS (DELETE FROM c WHERE id = $13) SELECT"
    )


def test_one_statement_stays_as_it_is() -> None:
    """It may return rows."""
    assert join_statements(("SELECT $1",)) == "SELECT $1"


def test_columns_without_rows_are_empty() -> None:
    """A statement that takes arrays gets all of them."""
    assert to_columns([("a", 1), ("b", 2)], 2) == [["a", "b"], [1, 2]]
    assert to_columns([], 2) == [[], []]

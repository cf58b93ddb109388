"""Lists of objects are tables for people."""

from tidemill.cli.item_list import format_field


def test_values_are_shown_in_one_line() -> None:
    """Texts as they are, objects as JSON."""
    assert format_field("only", ["accumulators:a", "reactors:b"]) == "accumulators:a, reactors:b"
    assert format_field("labels", ()) == ""
    assert format_field("value", {"a": [1]}) == '{"a": [1]}'
    assert format_field("value", [1, None]) == "[1, null]"
    assert format_field("note", "two\nlines") == "two lines"
    assert format_field("is_paused", False) == ""

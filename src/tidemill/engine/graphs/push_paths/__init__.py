"""The generated functions that take a pushed event through its graphs in one call."""

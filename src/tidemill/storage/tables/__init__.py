"""Plain tables, each spelled once for all databases: port, row, SQL and class in one module."""

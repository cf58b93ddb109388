"""Event names, structured logs and metrics."""

"""Executors: where attempts run."""

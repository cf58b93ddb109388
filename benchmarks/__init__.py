"""Benchmarks: each prints a table with ratios measured in one run, and writes its figures as JSON."""

"""The graph engine: runs accumulators, reactors and their graphs."""

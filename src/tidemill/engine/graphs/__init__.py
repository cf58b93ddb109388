"""Running computation graphs: accumulators, reactors, and what keeps them alive."""

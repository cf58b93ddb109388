"""Keyed reactors: one firing loop and one set of accumulators, which work on the state of one key at a time."""

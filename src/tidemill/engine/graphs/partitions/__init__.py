"""Keyed reactors: split into partitions, which the nodes of a store share."""

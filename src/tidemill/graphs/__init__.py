"""Computation graphs: definition, wiring, compiler, and the decision to fire. Pure: no I/O, no loop, no clock."""

"""Capacity: what a load needs, by unit costs that were measured, and a simulation that checks the arithmetic."""

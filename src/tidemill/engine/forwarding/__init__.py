"""Forwarding: operations on reactors and accumulators reach the node that owns them, through the store."""

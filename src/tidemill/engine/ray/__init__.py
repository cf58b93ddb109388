"""Processes on the nodes of a Ray cluster: one actor holds each, and outlives the node that asked for it."""

"""Shared by every layer: errors, clock, durations, back-off, state transitions, settings. Imports no other layer."""

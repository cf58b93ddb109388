"""What every layer shares: errors, clock, durations, back-off, state transitions, settings. Imports no other layer."""

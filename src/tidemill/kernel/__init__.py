"""The words every layer shares: errors, time, durations, back-off, moves, settings. Imports nothing of ours."""

"""What outlives the process: snapshots, the journal, dead letters, and reading them back."""

"""What authors' annotations say: functions read, values told apart, let in, and stored. Shared by both engines."""

"""What a computation graph is, how it is wired and compiled, and when it fires. Pure: no I/O, no loop, no clock."""

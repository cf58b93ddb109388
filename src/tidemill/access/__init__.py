"""Access control: principals, roles and permissions. Pure: no I/O, no loop, no clock."""

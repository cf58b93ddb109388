"""Executes a program that gets no namespaces, as in most containers.

`python refusing_namespaces.py PROGRAM ARGUMENT...`
"""

import ctypes
import os
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000


def main() -> None:
    """Enter a user namespace that allows no others; a system that refuses even this one needs nothing more."""
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")
        for kind in ("pid", "user"):
            Path(f"/proc/sys/user/max_{kind}_namespaces").write_text("0", encoding="ascii")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()

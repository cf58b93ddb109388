"""Isolation of the probe: the code of a package runs in a process that can neither see nor signal the node.

The process that the node has started becomes the keeper. It forks the process that imports the package, and ends as
that one ends. On Linux the forked process lives in a pid namespace with its own `/proc`, so that it has no number
for the node. If the keeper may not make one, as root may, it also makes a user namespace, where it may. The process
gives up the rights to leave all this, to trace others, and to get rights with a program that it starts. Root keeps the
others: packages may read files of other users.

Many containers refuse namespaces. There Landlock keeps the signals of the process to itself and its children, from
Linux 6.12 on. Without both, the parent of the import is still the keeper, so that a signal to the parent does not reach
the node. But code that looks for the node can signal it, because both have the same user.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 0x2, 0x4, 0x8, 0x4000, 0x80000
_CAPABILITY_VERSION = 0x20080522
_CAP_SYS_PTRACE, _CAP_SYS_ADMIN = 19, 21
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF, _LANDLOCK_SCOPE_SIGNAL = 444, 446, 2
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38


def isolate(parent_pipe: int) -> None:
    """Return in a new process that cannot see the parent of this one. This one waits for it, and ends as it ends.

    The pipe ends when the parent does.
    """
    namespace = None
    if sys.platform == "linux" and can_make_namespace(parent_pipe):
        with suppress(OSError):  # a library that starts with Python may have started a thread, which the trial had not
            namespace = _PidNamespace.make(parent_pipe)
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            drop_capabilities(all_of_them=namespace is not None and namespace.has_user_namespace)
        if (ruleset := make_signal_scope()) is not None:
            ctypes.CDLL(None).syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0)
            os.close(ruleset)
        return
    _keep(child, namespace)


def can_make_namespace(parent_pipe: int) -> bool:
    """Try it in a process that ends: a system may refuse a late step, and the early ones cannot be undone."""
    trial = os.fork()
    if trial == 0:
        status = 1
        with suppress(OSError):
            _PidNamespace.make(parent_pipe).close()
            status = 0
        os._exit(status)
    return os.waitpid(trial, 0)[1] == 0


class _PidNamespace:
    """A pid namespace for the processes that this one forks from now on, as long as its first process lives.

    The system hardly lets signals through to the first process of a namespace. So the package is imported in another
    one, and the first one does nothing but wait for the end of the node.
    """

    def __init__(self, first_process: int, *, has_user_namespace: bool) -> None:
        self._first_process = first_process
        self.has_user_namespace = has_user_namespace

    @classmethod
    def make(cls, parent_pipe: int) -> "_PidNamespace":
        """Make a namespace; OSError if the system refuses."""
        libc = ctypes.CDLL(None, use_errno=True)
        has_user_namespace = _unshare(libc)
        _check(libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None))  # nothing that is mounted here shows outside
        ready, ready_end = os.pipe()
        first_process = os.fork()
        if first_process == 0:
            _run_first_process(libc, ready_end, parent_pipe)
        namespace = cls(first_process, has_user_namespace=has_user_namespace)
        os.close(ready_end)
        is_ready = os.read(ready, 1)
        os.close(ready)
        if not is_ready:
            namespace.close()
            raise OSError("no /proc for the namespace")
        return namespace

    def close_if_empty(self) -> None:
        """End the namespace, unless processes are left in it: those are counted first, and killed, by the node."""
        if [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]:
            self.close()

    def close(self) -> None:
        """End the first process, and with it all others."""
        os.kill(self._first_process, signal.SIGKILL)
        os.waitpid(self._first_process, 0)


def drop_capabilities(*, all_of_them: bool) -> None:
    """Give up, for this process and what it starts, the rights to unmount its /proc and to trace others, or all."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, held = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _check(libc.capget(header, held))
    dropped = 1 << _CAP_SYS_PTRACE | 1 << _CAP_SYS_ADMIN  # in the first words of three sets
    kept = [0] * 6 if all_of_them else [*(bits & ~dropped for bits in held[:3]), *held[3:]]
    for capability in (_CAP_SYS_PTRACE, _CAP_SYS_ADMIN):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused without rights: then the next line is enough
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if kept != held[:]:  # sandboxes of services may forbid the call
        _check(libc.capset(header, (ctypes.c_uint32 * 6)(*kept)))


def _unshare(libc: ctypes.CDLL) -> bool:
    """Enter new namespaces; return whether a user namespace was needed. Files stay readable as before."""
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWPID | _CLONE_NEWNS) == 0:
        return False
    _check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")
    return True


def _run_first_process(libc: ctypes.CDLL, ready_end: int, parent_pipe: int) -> NoReturn:
    """Be the first process of a namespace: give it a /proc, reap what is orphaned, and end with the node."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None) == 0:
        os.write(ready_end, b"!")
        os.read(parent_pipe, 1)
    os._exit(0)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def make_signal_scope() -> int | None:
    """Return the descriptor of a Landlock ruleset that lets no signal out; None if the system has none."""
    if sys.platform != "linux":
        return None
    handled_and_scoped = (ctypes.c_uint64 * 3)(0, 0, _LANDLOCK_SCOPE_SIGNAL)
    size = ctypes.c_size_t(ctypes.sizeof(handled_and_scoped))
    descriptor: int = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, handled_and_scoped, size, 0)
    return None if descriptor < 0 else descriptor


def is_first_in_namespace(pid: int) -> bool:
    """Return whether a process is the first one of a pid namespace directly below that of this process."""
    status = Path("/proc", str(pid), "status").read_text(encoding="ascii", errors="replace")
    return any(line.split()[2:] == ["1"] for line in status.splitlines() if line.startswith("NSpid:"))


def _keep(child: int, namespace: _PidNamespace | None) -> NoReturn:
    """Pass the request for a stack on to the child, and end as it ends."""
    import resource  # on use: Windows has none, and imports this module for loose files

    signal.signal(signal.SIGABRT, lambda *_: os.kill(child, signal.SIGABRT))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if namespace is not None:
        namespace.close_if_empty()
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # not for SIGKILL
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)

"""Masked output: what a process prints has no secrets, wherever and whenever its code prints."""

import io
import os
import signal
import sys
import threading
from contextlib import redirect_stdout
from typing import Any

import pytest

from tidemill.kernel.masked_output import MaskedOutput, MaskedTextStream
from tidemill.kernel.masking import SecretMask

SECRET = "secret-1"


def mask_of_secret() -> SecretMask:
    """Return a mask of the secret."""
    mask = SecretMask()
    mask.add(SECRET)
    return mask


class Interrupted(io.StringIO):
    """Runs code in the middle of the first write, as the garbage collector may."""

    stream: MaskedTextStream | None = None

    def write(self, text: str) -> int:
        """Write, after the other code."""
        if (stream := self.stream) is not None:
            self.stream = None
            stream.write(f"[{SECRET}]")
            stream.flush()
        return super().write(text)


def test_a_finalizer_prints_while_its_thread_prints() -> None:
    """S-6: the thread does not wait for itself, both texts are masked, and what was held back stays so."""
    output = Interrupted()
    output.stream = stream = MaskedTextStream(output, mask_of_secret())

    def print_twice() -> None:
        stream.write("a sec")
        stream.write("ret-1\n")

    thread = threading.Thread(target=print_twice, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert output.getvalue() == "[***]a ***\n"


class Slow(io.StringIO):
    """Keeps a thread of one process in its write."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = os.getpid()
        self.is_writing, self.may_end = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        """Write, when it may end."""
        if os.getpid() == self.owner:
            self.is_writing.set()
            assert self.may_end.wait(10)
        return super().write(text)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
def test_a_forked_process_prints_although_a_thread_was_printing() -> None:
    """The thread, which has the lock, does not exist in the new process."""
    output = Slow()
    stream = MaskedTextStream(output, mask_of_secret())
    thread = threading.Thread(target=stream.write, args=["of the thread\n"])
    thread.start()
    assert output.is_writing.wait(10)
    if (child := os.fork()) == 0:
        signal.alarm(10)
        stream.write(f"{SECRET}\n")
        os._exit(0 if output.getvalue() == "***\n" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    output.may_end.set()
    thread.join()


def test_a_redirection_does_not_end_the_masking(monkeypatch: pytest.MonkeyPatch) -> None:
    """S-6: the first secret may be read while the output goes elsewhere; each stream is wrapped once."""
    monkeypatch.setattr("sys.stdout", before := io.StringIO())
    output = MaskedOutput(mask_of_secret())
    for number in range(3):
        with redirect_stdout(elsewhere := io.StringIO()):
            output.install()
            print(SECRET)
        assert elsewhere.getvalue() == "***\n"
        output.install()
        print(number, SECRET)
        assert isinstance(sys.stdout, MaskedTextStream)
        assert sys.stdout.wrapped is before
    output.restore()
    assert sys.stdout is before
    assert before.getvalue() == "0 ***\n1 ***\n2 ***\n"


def test_bytes_are_masked_below_the_text() -> None:
    """S-6: libraries write to the buffer of the standard output, or wrap it, and some to the file below."""
    written = io.BytesIO()
    stream = MaskedTextStream(io.TextIOWrapper(io.BufferedWriter(_Unbuffered(written))), mask_of_secret())
    stream.buffer.write(f"1 {SECRET}, sec".encode())
    stream.buffer.writelines([b"ret-1", memoryview(b"\xff\n")])
    stream.flush()
    wrapper = io.TextIOWrapper(stream.buffer, write_through=True)
    wrapper.write(f"2 {SECRET}\n")
    wrapper.flush()
    stream.buffer.raw.write(f"3 {SECRET}\n".encode())
    assert written.getvalue() == b"1 ***, ***\xff\n2 ***\n3 ***\n"
    wrapper.detach()


class _Unbuffered(io.RawIOBase):
    """A file in memory."""

    def __init__(self, written: io.BytesIO) -> None:
        self._written = written

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._written.write(data)

"""Finds the line of the author's code that an error came from."""

from tidemill.annotations.signatures import AuthorFunction


def locate_error(error: BaseException, function: AuthorFunction | None) -> str:
    """Return the last line of the function's own file that an error passed through, as "file:line"; "" if none.

    Cheap: it reads no source.
    """
    line, trace = 0, error.__traceback__
    while function is not None and trace is not None:
        if trace.tb_frame.f_code.co_filename == function.location.file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{function.location.file}:{line}" if function is not None and line else ""

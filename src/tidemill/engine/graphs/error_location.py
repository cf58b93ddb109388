"""Where in an author's code an error came from, for those who are to mend it."""

from tidemill.annotations.signatures import AuthorFunction


def locate_error(error: BaseException, function: AuthorFunction | None) -> str:
    """Return the last line of the function's own file that an error passed through: "file:line"; "" if there is none.

    It is cheap: no source is read.
    """
    line, trace = 0, error.__traceback__
    while function is not None and trace is not None:
        if trace.tb_frame.f_code.co_filename == function.location.file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{function.location.file}:{line}" if function is not None and line else ""

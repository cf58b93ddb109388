"""Whether accumulators can begin: looked at where a package is tried, and again where it is loaded."""

from collections.abc import Iterator

from tidemill.annotations.variants import label
from tidemill.graphs.definition import Accumulator, Reactor
from tidemill.kernel.author_errors import AUTHOR_ERRORS, describe
from tidemill.kernel.errors import Problem


def beginning_problems(reactor: Reactor) -> Iterator[Problem]:
    """Yield what is wrong with accumulators whose events could not be checked, or whose state cannot begin."""
    for one in reactor.accumulators:
        yield from one.signature.problems
        yield from _state_problems(one)


def _state_problems(accumulator: Accumulator) -> Iterator[Problem]:
    if accumulator.state is None:
        return
    try:
        accumulator.state()
    except AUTHOR_ERRORS as error:  # author code: also what would end more than this package, such as SystemExit
        message = f"state= of accumulator '{accumulator.name}' begins as {label(accumulator.state)}()"
        yield Problem(message=f"{message}: {describe(error)}; give its fields defaults", location=accumulator.location)

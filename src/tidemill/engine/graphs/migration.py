"""Values that outlive a hot swap: as the type that the newer version declares, if they fit it."""

from collections.abc import Callable
from typing import Any

import msgspec

from tidemill.graphs.admission import Admission, MisfitError


def migrated(value: Any, annotation: Any, otherwise: Callable[[], Any]) -> Any:
    """Return a value as the type that a newer version declares, or what `otherwise` gives if it does not fit."""
    if value is None:
        return otherwise()
    try:
        admission = Admission(annotation)
        fits = admission.classes is None or isinstance(value, admission.classes)
        return value if fits else admission.admit(msgspec.to_builtins(value))
    except (MisfitError, TypeError):
        return otherwise()

"""What tests may look at inside loaded packages."""

from tidemill.packages.service import PackageService


class PackageProbe:
    """Shows parts of loaded packages that the public API does not."""

    def __init__(self, service: PackageService) -> None:
        self._service = service

"""The same work on other libraries from PyPI, each in an environment and a process of its own."""

"""Hypothesis profiles.

`ci` is the default and always tries the same cases; `pytest --hypothesis-profile=soak` hunts for new ones.
"""

from hypothesis import settings

pytest_plugins = ["tests.postgres"]

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100, database=None)
settings.register_profile("soak", deadline=None, max_examples=10_000)
settings.load_profile("ci")

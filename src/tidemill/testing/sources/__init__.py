"""A contract suite for sources: run it on yours.

@pytest.mark.parametrize("check", tm.testing.sources.checks())
async def test_my_source_keeps_the_contract(check):
    async with MyServer() as server:  # a SourceUnderTest: starts its server, and stops it in the end
        await check(server)
"""

from tidemill.testing.sources.contract import Check, checks
from tidemill.testing.sources.under_test import SourceUnderTest

__all__ = ["Check", "SourceUnderTest", "checks"]

"""The back office: small jobs that the clock starts all day, one of which does not always succeed.

    tidemill dev examples --pool warehouse=1    run it, with the other examples

`exchange_rates` runs every minute; in one run of four a provider sends a rate that is out of range, and the run fails
without another try, because a retry would read the same. `digest` runs every two minutes: its queries share the one
slot of the pool `warehouse` with the nightly report, so that they run one after the other.
"""

import asyncio
import random

import tidemill as tm

# -- every minute: fails now and then ----------------------------------------------------------------------------------

rates = tm.Workflow("exchange_rates", schedule=tm.Cron("* * * * *", catchup="none"), tags=["finance"])


@rates.task
def quote(ctx: tm.Context) -> dict[str, float]:
    """Fetch the rates of the minute; those of one minute are always the same."""
    chance = random.Random(f"{ctx.slot or ctx.run_id}")
    dollar = 1.08 if chance.random() > 0.25 else 108.0
    return {"USD": round(dollar * chance.uniform(0.99, 1.01), 4), "GBP": round(0.86 * chance.uniform(0.99, 1.01), 4)}


@rates.task
def check(quote: dict[str, float], ctx: tm.Context) -> dict[str, float]:
    """Refuse what cannot be true."""
    for currency, rate in quote.items():
        ctx.log.info("one euro is %.4f %s", rate, currency)
        if not 0.5 < rate < 2:
            raise tm.Fail(f"{rate} {currency} for a euro is out of range: the provider has lost a decimal point")
    return quote


@rates.task
def store(check: dict[str, float]) -> int:
    """Store the rates."""
    return len(check)


# -- every two minutes: queries that wait for one another --------------------------------------------------------------

digest = tm.Workflow("digest", schedule=tm.Cron("*/2 * * * *", catchup="latest"), tags=["finance"])


@digest.task
def regions() -> list[str]:
    """List the regions."""
    return ["north", "east", "south", "west"]


@digest.task(each="regions", pool="warehouse")
async def turnover(regions: str, ctx: tm.Context) -> int:
    """Query the turnover of one region: four queries, and one slot for them."""
    await asyncio.sleep(random.Random(ctx.token).uniform(2, 5))
    ctx.log.info("the %s is done", regions)
    return random.Random(ctx.token).randrange(1_000, 9_000)


@digest.task
def send(turnover: list[int]) -> str:
    """Send the sum."""
    return f"turnover of {len(turnover)} regions: {sum(turnover):,}"

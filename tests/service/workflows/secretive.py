"""Workflows whose tasks read secrets and are careless with them, in a module that another process can import."""

import logging
import os
import sys

import tidemill as tm

careless = tm.Workflow("careless")


@careless.task
def talk(ctx: tm.Context) -> int:
    secret = ctx.secret("password")
    ctx.log.info("the password is %s", secret, password=secret, nested={"deep": [secret]})
    ctx.log.warning("x" * (64 * 1024 - 100) + secret + "y" * 100)
    for number in range(0, len(secret), 3):
        os.write(1, secret[number : number + 3].encode())
    print(f"\nit is {secret!r}", flush=True)
    print(secret, file=sys.stderr, flush=True)
    return len(secret)


@careless.task(after=[talk])
async def fail(ctx: tm.AsyncContext) -> None:
    secret = await ctx.secret("password")
    try:
        raise KeyError(secret)
    except KeyError as error:
        raise ValueError(f"cannot sign in with {secret}") from error


printing = tm.Workflow("printing")


@printing.task
def print_all(ctx: tm.Context) -> None:
    print("before the secret is read")
    secret = ctx.secret("password")
    print("it is", secret, [secret])
    for number in range(0, len(secret), 3):
        sys.stdout.write(secret[number : number + 3])
    print("\nto stderr:", secret, file=sys.stderr)
    logging.getLogger("library").warning("signs in with %s", secret)


careless_away = tm.Workflow("careless_away")
careless_away.task(executor="worker")(talk)
careless_away.task(executor="worker", after=[talk])(fail)


reading = tm.Workflow("reading")


@reading.task
def read_both(ctx: tm.Context) -> list[object]:
    return [ctx.variable("region"), ctx.variable("nothing") is None, len(ctx.secret("password"))]


@reading.task
async def read_later(ctx: tm.AsyncContext) -> list[object]:
    return [await ctx.variable("region"), len(await ctx.secret("password"))]


@reading.task
def read_unknown(ctx: tm.Context) -> str:
    try:
        ctx.secret("pasword")
    except tm.RequestError as error:
        return f"{error.code}: {error}"
    return "found"

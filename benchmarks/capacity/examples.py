"""The two loads of docs/explanation/scale.md, and how long they are simulated."""

from benchmarks.capacity.arithmetic import StreamLoad, TaskLoad

MILLION_EVENTS = StreamLoad(rate=1_000_000, partitions=256, hottest_key=0.002, keys=20_000, checkpoint_interval=1.0)
"""One million events per second of 20,000 keys. The most frequent key has one in 500."""

TEN_MILLION_TASKS = TaskLoad(per_day=10_000_000, busiest_hour=0.1, on_the_hour=0.2, duration=30.0, patience=300.0)
"""Ten million task runs per day, a tenth of them in the busiest hour, a fifth of these on the hour."""

SIMULATED_SECONDS = 30.0
"""How long a stream is simulated before a host dies, and after that."""

SEEDS = 20
"""How many times a stream is simulated: one feed may be lucky in its partitions and its seconds."""

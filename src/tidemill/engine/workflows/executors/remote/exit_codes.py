"""The exit codes of `tidemill attempt`: what a cluster shows of an attempt."""

REPORTED = 0
"""It has reported its result, whichever that is."""
CONFIGURATION_ERROR = 2
"""The environment names no server or no token, or the command was called wrongly."""
NOT_WANTED = 10
"""The server no longer wants the attempt, or another process runs it."""
LEASE_LOST = 11
"""No server answered until the lease had run out. The code was stopped."""
TERMINATED = 12
"""The cluster has terminated it. The code was stopped."""

MEANINGS = {
    REPORTED: "The attempt has reported its result, whichever that is.",
    CONFIGURATION_ERROR: "The environment names no server or no token, or the command was called wrongly.",
    NOT_WANTED: "The server no longer wants the attempt, or another process runs it. The code was stopped.",
    LEASE_LOST: "No server answered until the lease had run out. The code was stopped.",
    TERMINATED: "The cluster has terminated the attempt with SIGTERM. The code was stopped.",
}
"""By code, for people."""

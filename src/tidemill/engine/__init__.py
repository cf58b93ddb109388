"""The services that run until cancelled."""

"""The workflow engine: services that plan, claim, run and repair."""

"""Runs attempts as pods of a Kubernetes cluster. Only `cluster` imports the client: it needs the extra `kubernetes`."""

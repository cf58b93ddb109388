"""The server: HTTP API, WebSocket and metrics of a running node."""

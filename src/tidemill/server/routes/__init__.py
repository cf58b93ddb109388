"""The handlers of the HTTP API, one module per noun. `route_table` says which routes they serve."""

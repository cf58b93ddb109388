"""The answers of the HTTP API, one module per noun. The handlers in `routes` make them."""

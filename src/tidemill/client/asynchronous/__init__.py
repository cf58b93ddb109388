"""The asynchronous client. `make client` writes the blocking one from it."""

"""The asynchronous client. `make api` writes the blocking one from it."""

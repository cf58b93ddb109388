"""The blocking client, written from the asynchronous one by `make api`."""

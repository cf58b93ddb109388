"""The launcher of attempts on a Ray cluster. It does not import Ray: a gateway does, in a separate process."""

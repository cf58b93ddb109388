"""Type annotations of author code: signatures, variants, validation, conversion and encoding. Both engines use it."""

"""The six steps of loading a package, in this order; unloading takes them in the reverse order."""

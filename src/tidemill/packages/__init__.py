"""From modules and definitions to what runs: reading packages, loading and unloading them whole."""

"""What happens, what it is called, and how it is counted and written down."""

"""WebSocket connections: pushes to accumulators, commands to reactors, and the live event feed."""

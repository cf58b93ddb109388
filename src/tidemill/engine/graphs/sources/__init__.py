"""Where streams get their events: brokers, and sources that authors bring."""

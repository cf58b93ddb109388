"""Source readers: brokers, and sources that authors bring."""

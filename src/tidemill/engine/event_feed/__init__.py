"""The event feed: what happens on a node and in its store, live, for any number of readers."""

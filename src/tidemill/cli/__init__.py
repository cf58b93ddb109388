"""The command line: nouns, then verbs."""

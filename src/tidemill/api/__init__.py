"""The contract: messages and operations by noun, from which every surface of Tidemill is derived."""

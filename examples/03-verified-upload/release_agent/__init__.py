"""The agent of the verified upload example."""

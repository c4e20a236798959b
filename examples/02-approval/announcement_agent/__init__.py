"""The agent of the approval example."""

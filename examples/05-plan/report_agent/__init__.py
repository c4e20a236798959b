"""The agent of the plan example."""

"""The agent of the documents example."""

"""The agent of the example of 500 documents."""

"""What the operator does to the world: watching, the queue, the API server, the stores, the clock."""

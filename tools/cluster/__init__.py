"""A Kubernetes cluster for tests, on one Linux machine."""

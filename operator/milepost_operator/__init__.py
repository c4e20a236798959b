"""The Kubernetes operator of Milepost."""

"""What the operator decides, as plain data in and plain data out: no I/O, no clock, no Kubernetes client."""

"""What runs in the pod: claims the run, loads its history, runs the agent, and ends with a telling code."""

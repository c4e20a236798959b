"""Long agent runs on Kubernetes that survive the loss of their pod."""

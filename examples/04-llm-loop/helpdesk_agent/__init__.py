"""The agents of the example with a language model."""

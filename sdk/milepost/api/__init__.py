"""What the operator, the executor and the command line agree on: resource types, names, the head's summary.

Nothing here reads or writes anything.
"""

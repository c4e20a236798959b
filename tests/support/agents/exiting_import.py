"""A module that ends its process when it is imported."""

import sys

sys.exit("not a module")

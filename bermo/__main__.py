"""`python -m bermo` and `accelerate launch -m bermo` are the command `bermo`."""

import sys

from bermo.cli import main

if __name__ == "__main__":
    sys.exit(main())

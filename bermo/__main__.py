"""`python -m bermo` and `accelerate launch -m bermo` are the command `bermo`."""

import sys

from bermo.cli import main

sys.exit(main())

"""`python -m cory.cli` is the command `cory`."""

import sys

from cory.cli.main import main

sys.exit(main())

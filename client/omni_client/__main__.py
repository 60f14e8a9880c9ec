"""`python -m omni_client`."""

import sys

from omni_client.cli import main

if __name__ == "__main__":
    sys.exit(main())

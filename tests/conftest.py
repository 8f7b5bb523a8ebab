"""What a developer's shell has set for studies is not for the tests."""

import os

os.environ.pop("FOVEAPOOL_KNOWN", None)

"""`tidemill dev` for those who cannot wait: `python hasty_dev.py dev FOLDER`.

It counts out what goes on every two seconds instead of ten, and ends an import after four.
"""

import os

from tidemill.cli import dev_activity
from tidemill.cli.main import main

ROUND = 2.0  # seconds

if __name__ == "__main__":
    dev_activity.SUMMARY_INTERVAL = ROUND
    os.environ["TIDEMILL_PROBE_TIMEOUT"] = "4s"
    main()

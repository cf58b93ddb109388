"""`tidemill dev` for those who cannot wait: `python hasty_dev.py dev FOLDER`.

It counts out what goes on every two seconds instead of ten, and ends an import after four.
"""

from functools import partialmethod

from tidemill.cli import dev_activity
from tidemill.cli.main import main
from tidemill.packages.loading.inspector import ProbeLimits
from tidemill.packages.loading.preparer import PackagePreparer

ROUND = 2.0  # seconds
LIMITS = ProbeLimits(wall=4.0)

if __name__ == "__main__":
    dev_activity.SUMMARY_INTERVAL = ROUND
    PackagePreparer.__init__ = partialmethod(PackagePreparer.__init__, limits=LIMITS)
    main()

"""Files with which Tidemill is operated, for `tidemill export`: `files` has one folder for each of its targets."""

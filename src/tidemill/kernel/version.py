"""The version of Tidemill."""

VERSION = "0.1.0"

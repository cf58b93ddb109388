"""The version of Tidemill."""

VERSION = "0.2.0"

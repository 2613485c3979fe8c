"""The version of this library and of the `backends` command; the build reads it here."""

__version__ = "0.1.0"

"""The version of this library and of the `backends` command, which the build reads here."""

__version__ = "0.1.0"

"""The version of Oubli; the package's metadata is built from it."""

VERSION = "0.2.0"

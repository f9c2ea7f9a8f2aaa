"""Writes tables as files: data files, and the manifests that say which of them are the table."""

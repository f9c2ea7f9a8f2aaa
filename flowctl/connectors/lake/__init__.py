"""What table formats on a file system or an object store share: which rows and files a batch changes, and histories of
two tables. It knows none of them: a format implements :mod:`.table` and :mod:`.writer`."""

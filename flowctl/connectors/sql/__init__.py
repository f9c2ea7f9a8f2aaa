"""What SQL databases share, over what each of them says of itself.

A database brings an :class:`.session.SqlDialect` (what it writes its own way), a :class:`.session.Session` (one open
connection) and a subclass of :class:`.target.SqlTarget` (how rows get into a staging table). The order of a commit is
in :mod:`.target`, its number in :mod:`.commits`, its change in :mod:`.change`, DDL in :mod:`.ddl`. For sources
:mod:`.conditions` has the bounds of cursors. Nothing here is one database's own.
"""

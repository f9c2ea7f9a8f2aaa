"""What SQL databases share, over what each of them says of itself. Nothing here is one database's own.

As a target, a database brings a :class:`.session.SqlDialect` (what it writes its own way), a :class:`.session.Session`
(one open connection) and a subclass of :class:`.target.SqlTarget`: how executors copy rows into a staging table, or, as
an :class:`.embedded.EmbeddedTarget`, in which form it stores values. The order of a commit is in :mod:`.target`, its
sequence number in :mod:`.commits`, its change in :mod:`.change`, DDL in :mod:`.ddl`, what the table's owner has put in
the way in :mod:`.hindrances`.

As a source, it brings :class:`.conditions.Comparisons` (how cursor values are compared). How far tables go, and how
this process reads them, is in :mod:`.source`; how a read is cut into parts in :mod:`.parts`, and how Spark reads those
in :mod:`.jdbc`.

Both are bounded by :mod:`.timeouts`; :mod:`.waiting` and :mod:`.watch` end calls that do not return.
"""

"""What SQL databases share. Nothing here is specific to one database.

As a target, a database provides a :class:`.session.SqlDialect` (its own SQL syntax), a :class:`.session.Session` (one
open connection) and a subclass of :class:`.target.SqlTarget`: how executors copy rows into a staging table, or, as an
:class:`.embedded.EmbeddedTarget`, in which form it stores values. The order of a commit is in :mod:`.target`, its
sequence number in :mod:`.commits`, its change in :mod:`.change`, DDL in :mod:`.ddl`, obstacles that the table's owner
created in :mod:`.hindrances`.

As a source, it provides :class:`.conditions.Comparisons` (how cursor values are compared). High watermarks, and how
this process reads tables, are in :mod:`.source`; how a read is split into parts is in :mod:`.parts`, and how Spark
reads those in :mod:`.jdbc`.

Both are bounded by :mod:`.timeouts`; :mod:`.waiting` and :mod:`.watch` end calls that do not return.
"""

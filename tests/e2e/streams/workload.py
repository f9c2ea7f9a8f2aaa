"""A seeded workload for a database of any kind: nine tables that refer to each other, changed in every way that a
change stream has to deal with. It runs as a thread of the test, or transaction by transaction."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.streams import dialects
from tests.e2e.streams.sources import PostgresDatabase, Session, database_of

#: In the order in which they refer to each other: parents first.
TABLES = ("customers", "addresses", "products", "orders", "lines", "payments", "documents", "tags", "readings")
#: Child table, its column, the parent table.
REFERENCES = (
    ("addresses", "customer_id", "customers"),
    ("orders", "customer_id", "customers"),
    ("lines", "order_id", "orders"),
    ("lines", "product_id", "products"),
    ("payments", "order_id", "orders"),
)
Connection = Session


@dataclass
class Workload:
    """Changes one database. ``big`` is the size of a long text, in bytes; ``rows`` of a large transaction; ``alters``:
    also changes the columns of `tags`, in these ways."""

    url: str
    seed: int
    big: int = 200_000
    rows: int = 2_000
    alters: tuple[str, ...] = ()
    transactions: int = 0
    _next: int = 0
    _columns: int = 0
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._database = database_of(self.url)
        is_postgres = isinstance(self._database, PostgresDatabase)
        self._dialect = dialects.POSTGRES if is_postgres else dialects.MYSQL

    def create(self) -> None:
        self._database.run(*(one for one in self._dialect.schema.split(";") if one.strip()))
        self.run(60)

    def run(self, transactions: int) -> None:
        """One after the other, each on one of two connections, the other with a transaction open."""
        with self._database.session() as one, self._database.session() as other:
            for _ in range(transactions):
                self._transaction(one, other)

    def start(self, pause: float = 0.0) -> None:
        """In a thread, until :meth:`stop`, with pauses of this many seconds; survives the server's restarts."""

        def loop() -> None:
            while not self._stopping.is_set():
                try:
                    with self._database.session() as one, self._database.session() as other:
                        while not self._stopping.wait(pause):
                            self._transaction(one, other)
                except self._database.lost:
                    self._stopping.wait(0.5)
                except BaseException as failure:  # noqa: BLE001 - raised by stop()
                    self._failure = failure
                    return

        self._thread = threading.Thread(target=loop, name="workload")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _transaction(self, one: Connection, other: Connection) -> None:
        chosen = self._random
        if chosen.random() < 0.15:  # interleaved: the one that begins first commits last
            self._insert_document(other)
            self._small(one)
            one.commit()
            other.commit()
        elif chosen.random() < 0.02:
            self._large(one)
            one.commit()
        elif chosen.random() < 0.03:
            for statement in self._dialect.truncates:
                one.execute(statement)
            one.commit()
        elif self.alters and chosen.random() < 0.03:
            self._alter(one)
            one.commit()
        else:
            for _ in range(chosen.randint(1, 6)):
                self._small(one)
                if chosen.random() < 0.15:
                    self._rolled_back(one)
            if chosen.random() < 0.05:
                one.rollback()
            else:
                one.commit()
        self.transactions += 1

    def _small(self, connection: Connection) -> None:
        actions: tuple[Callable[[Connection], None], ...] = (
            self._insert_order, self._insert_order, self._insert_order,
            self._insert_customer, self._insert_document, self._insert_tag, self._insert_reading,
            self._update, self._update, self._update, self._update_document, self._update_document,
            self._delete_order, self._delete_other, self._change_key, self._change_key,
        )  # fmt: skip
        self._random.choice(actions)(connection)

    def _rolled_back(self, connection: Connection) -> None:
        connection.execute("SAVEPOINT here")
        self._small(connection)
        connection.execute("ROLLBACK TO SAVEPOINT here")

    def _id(self) -> int:
        self._next += 1
        return self._next

    def _some(self, connection: Connection, table: str, key: str = "id") -> Any:
        """A key of a random row, or None."""
        query = f"SELECT {key} FROM {table} ORDER BY {key}"
        found = connection.execute(query).fetchall()
        return self._random.choice(found) if found else None

    def _insert_customer(self, connection: Connection) -> int:
        id = self._id()
        connection.execute("INSERT INTO customers VALUES (%s, %s, %s, now())", [id, f"näme {id}", id * 1.25])
        values = [self._id(), id, "a 'street'\n\\ with \"quotes\""]
        connection.execute(f"INSERT INTO addresses VALUES (%s, %s, %s, {self._dialect.uuid})", values)
        return id

    def _insert_order(self, connection: Connection) -> None:
        found, product = self._some(connection, "customers"), self._some(connection, "products")
        customer = found[0] if found else self._insert_customer(connection)
        if product is None or self._random.random() < 0.2:
            product = (self._id(),)
            description = "d" * self._random.choice((10, self.big))
            connection.execute("INSERT INTO products VALUES (%s, 'thing', 9.99, %s)", [product[0], description])
        order = self._id()
        connection.execute("INSERT INTO orders VALUES (%s, %s, 'new', 0, localtimestamp)", [order, customer])
        for number in range(self._random.randint(1, 4)):
            values = [order, number, product[0], number + 1, self._random.choice((None, "", "note"))]
            connection.execute('INSERT INTO "lines" VALUES (%s, %s, %s, %s, %s)', values)
        connection.execute("INSERT INTO payments VALUES (%s, %s, 1, false)", [self._id(), order])

    def _insert_document(self, connection: Connection) -> None:
        body = chr(97 + self._random.randint(0, 25)) * self._random.choice((5, self.big))
        extra = "e" * self._random.choice((5, self.big))
        connection.execute("INSERT INTO documents VALUES (%s, 'new', %s, %s, 1)", [f"doc {self._id()}", body, extra])

    def _insert_tag(self, connection: Connection) -> None:
        values = [self._random.choice("abc"), f"tag {self._random.randint(0, 30)}", self._random.random()]
        connection.execute(
            f"INSERT INTO tags (kind, name, weight) VALUES (%s, %s, %s) {self._dialect.upsert}",
            values,
        )

    def _insert_reading(self, connection: Connection) -> None:
        values = [self._id(), self._random.choice(("2025-06-01", "2026-06-01")), self._random.random()]
        connection.execute("INSERT INTO readings VALUES (%s, %s, %s)", values)

    def _update(self, connection: Connection) -> None:
        table, change = self._random.choice(
            (
                ("customers", "score = coalesce(score, 0) + 1"),
                ("orders", "state = 'paid', total = total + 0.01"),
                ("payments", "is_settled = NOT is_settled"),
                ("products", "price = price + 0.01"),
                ("readings", "value = value * 2"),
            )
        )
        if found := self._some(connection, table):
            connection.execute(f"UPDATE {table} SET {change} WHERE id = %s", [found[0]])

    def _update_document(self, connection: Connection) -> None:
        """Mostly of a short column only, so that the long ones are not sent."""
        if found := self._some(connection, "documents"):
            change = self._random.choice(("version = version + 1", "title = 'changed'", "body = repeat('z', 150000)"))
            connection.execute(f"UPDATE documents SET {change} WHERE id = %s", [found[0]])

    def _delete_order(self, connection: Connection) -> None:
        if found := self._some(connection, "orders"):
            for table in ("payments", '"lines"'):
                connection.execute(f"DELETE FROM {table} WHERE order_id = %s", [found[0]])
            connection.execute("DELETE FROM orders WHERE id = %s", [found[0]])

    def _delete_other(self, connection: Connection) -> None:
        table = self._random.choice(("documents", "readings", "addresses"))
        if found := self._some(connection, table):
            connection.execute(f"DELETE FROM {table} WHERE id = %s", [found[0]])

    def _change_key(self, connection: Connection) -> None:
        """Of a row with long values that are not sent, of a row in another partition, of a parent, of part of a key."""
        what = self._random.randint(0, 3)
        if what == 0 and (found := self._some(connection, "documents")):
            connection.execute("UPDATE documents SET id = %s WHERE id = %s", [f"doc {self._id()}", found[0]])
        elif what == 1 and (found := self._some(connection, "readings")):
            later = self._random.choice(("2025-11-30", "2026-11-30"))
            connection.execute("UPDATE readings SET day = %s WHERE id = %s", [later, found[0]])
        elif what == 2 and (found := self._some(connection, "customers")):
            new = self._id()
            connection.execute("UPDATE customers SET id = %s WHERE id = %s", [new, found[0]])
            for table in () if self._dialect.cascades else ("addresses", "orders"):
                connection.execute(f"UPDATE {table} SET customer_id = %s WHERE customer_id = %s", [new, found[0]])
        elif found := self._some(connection, "tags", "kind, name"):
            connection.execute(
                "UPDATE tags SET name = %s WHERE kind = %s AND name = %s", [f"moved {self._id()}", found[0], found[1]]
            )

    def _large(self, connection: Connection) -> None:
        first = self._next + 1
        self._next += self.rows
        many = self._dialect.many.format(first=first, last=self._next)
        connection.execute(f"INSERT INTO readings {many}")
        connection.execute("UPDATE readings SET value = value + 1 WHERE id >= %s", [first])

    def _alter(self, connection: Connection) -> None:
        """A new column, with a default or without, and rows with it; a column of another type, under another name, or
        gone."""
        found = [name for name in self._database.columns("tags") if name.startswith("extra")]
        way = self._random.choice(self.alters) if found else "add"
        name = self._random.choice(found) if found else ""
        self._columns += 1
        new = f"extra_{self._columns}"
        statements = {
            "add": f"ALTER TABLE tags ADD COLUMN {new} integer",
            "default": f"ALTER TABLE tags ADD COLUMN {new} integer DEFAULT {self._columns}",
            "drop": f"ALTER TABLE tags DROP COLUMN {name}",
            "type": f"ALTER TABLE tags {self._dialect.retypes.format(name=name)}",
            "rename": f"ALTER TABLE tags RENAME COLUMN {name} TO {new}",
        }
        connection.execute(statements[way])
        if way in ("add", "default", "rename"):
            connection.execute(f"UPDATE tags SET {new} = length(name) WHERE kind = 'a'")
        self._insert_tag(connection)

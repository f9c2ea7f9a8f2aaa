"""A seeded workload for a PostgreSQL database: nine tables that refer to each other, changed in every way that a change
stream has to deal with. It runs as a thread of the test, or transaction by transaction."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, LiteralString, cast

import psycopg

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
SCHEMA = """
    CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, score numeric(12,2), joined timestamptz);
    CREATE TABLE addresses (id bigint PRIMARY KEY, customer_id bigint NOT NULL REFERENCES customers ON UPDATE CASCADE,
        street text, code uuid);
    CREATE TABLE products (id int PRIMARY KEY, title varchar(40), price numeric(10,2), description text);
    CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL REFERENCES customers ON UPDATE CASCADE,
        state text, total numeric(12,2), at timestamp);
    CREATE TABLE lines (order_id bigint REFERENCES orders, number int, product_id int NOT NULL REFERENCES products,
        amount int, note text, PRIMARY KEY (order_id, number));
    CREATE TABLE payments (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES orders, amount numeric(12,2),
        is_settled boolean);
    CREATE TABLE documents (id text PRIMARY KEY, title text, body text, extra text, version int);
    CREATE TABLE tags (kind text, name text, weight double precision, PRIMARY KEY (kind, name));
    CREATE TABLE readings (id bigint, day date, value double precision, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
    CREATE TABLE readings_old PARTITION OF readings FOR VALUES FROM ('2000-01-01') TO ('2026-01-01');
    CREATE TABLE readings_new PARTITION OF readings FOR VALUES FROM ('2026-01-01') TO ('2100-01-01');
"""

Connection = psycopg.Connection[Any]


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

    def create(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(SCHEMA)
        self.run(60)

    def run(self, transactions: int) -> None:
        """One after the other, each on one of two connections, the other with a transaction open."""
        with psycopg.connect(self.url) as one, psycopg.connect(self.url) as other:
            for _ in range(transactions):
                self._transaction(one, other)

    def start(self, pause: float = 0.0) -> None:
        """In a thread, until :meth:`stop`, with pauses of this many seconds; survives the server's restarts."""

        def loop() -> None:
            while not self._stopping.is_set():
                try:
                    with psycopg.connect(self.url) as one, psycopg.connect(self.url) as other:
                        while not self._stopping.wait(pause):
                            self._transaction(one, other)
                except psycopg.OperationalError:
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
            one.execute("TRUNCATE documents, tags")
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
        found = connection.execute(cast(LiteralString, query)).fetchall()
        return self._random.choice(found) if found else None

    def _insert_customer(self, connection: Connection) -> int:
        id = self._id()
        connection.execute("INSERT INTO customers VALUES (%s, %s, %s, now())", [id, f"näme {id}", id * 1.25])
        values = [self._id(), id, "a 'street'\n\\ with \"quotes\""]
        connection.execute("INSERT INTO addresses VALUES (%s, %s, %s, gen_random_uuid())", values)
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
            connection.execute("INSERT INTO lines VALUES (%s, %s, %s, %s, %s)", values)
        connection.execute("INSERT INTO payments VALUES (%s, %s, 1, false)", [self._id(), order])

    def _insert_document(self, connection: Connection) -> None:
        body = chr(97 + self._random.randint(0, 25)) * self._random.choice((5, self.big))
        extra = "e" * self._random.choice((5, self.big))
        connection.execute("INSERT INTO documents VALUES (%s, 'new', %s, %s, 1)", [f"doc {self._id()}", body, extra])

    def _insert_tag(self, connection: Connection) -> None:
        values = [self._random.choice("abc"), f"tag {self._random.randint(0, 30)}", self._random.random()]
        connection.execute(
            "INSERT INTO tags (kind, name, weight) VALUES (%s, %s, %s)"
            " ON CONFLICT (kind, name) DO UPDATE SET weight = excluded.weight",
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
            connection.execute(cast(LiteralString, f"UPDATE {table} SET {change} WHERE id = %s"), [found[0]])

    def _update_document(self, connection: Connection) -> None:
        """Mostly of a short column only, so that the long ones are not sent."""
        if found := self._some(connection, "documents"):
            change = self._random.choice(("version = version + 1", "title = 'changed'", "body = repeat('z', 150000)"))
            connection.execute(cast(LiteralString, f"UPDATE documents SET {change} WHERE id = %s"), [found[0]])

    def _delete_order(self, connection: Connection) -> None:
        if found := self._some(connection, "orders"):
            for table in ("payments", "lines"):
                connection.execute(cast(LiteralString, f"DELETE FROM {table} WHERE order_id = %s"), [found[0]])
            connection.execute("DELETE FROM orders WHERE id = %s", [found[0]])

    def _delete_other(self, connection: Connection) -> None:
        table = self._random.choice(("documents", "readings", "addresses"))
        if found := self._some(connection, table):
            connection.execute(cast(LiteralString, f"DELETE FROM {table} WHERE id = %s"), [found[0]])

    def _change_key(self, connection: Connection) -> None:
        """Of a row with long values that are not sent, of a row in another partition, of a parent, of part of a key."""
        what = self._random.randint(0, 3)
        if what == 0 and (found := self._some(connection, "documents")):
            connection.execute("UPDATE documents SET id = %s WHERE id = %s", [f"doc {self._id()}", found[0]])
        elif what == 1 and (found := self._some(connection, "readings")):
            connection.execute("UPDATE readings SET day = day + 300 WHERE id = %s AND day < '2030-01-01'", [found[0]])
        elif what == 2 and (found := self._some(connection, "customers")):
            connection.execute("UPDATE customers SET id = %s WHERE id = %s", [self._id(), found[0]])
        elif found := self._some(connection, "tags", "(kind, name)::text, kind, name"):
            connection.execute(
                "UPDATE tags SET name = %s WHERE kind = %s AND name = %s", [f"moved {self._id()}", found[1], found[2]]
            )

    def _large(self, connection: Connection) -> None:
        first = self._next + 1
        self._next += self.rows
        connection.execute(
            "INSERT INTO readings SELECT g, '2026-01-01', g FROM generate_series(%s::bigint, %s::bigint) g",
            [first, self._next],
        )
        connection.execute("UPDATE readings SET value = value + 1 WHERE id >= %s", [first])

    def _alter(self, connection: Connection) -> None:
        """A new column, with a default or without, and rows with it; a column of another type, under another name, or
        gone."""
        found = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'tags'::regclass AND attname LIKE 'extra%'"
            " AND NOT attisdropped ORDER BY attnum"
        ).fetchall()
        way = self._random.choice(self.alters) if found else "add"
        name = self._random.choice(found)[0] if found else ""
        self._columns += 1
        new = f"extra_{self._columns}"
        statements = {
            "add": f"ALTER TABLE tags ADD COLUMN {new} integer",
            "default": f"ALTER TABLE tags ADD COLUMN {new} integer DEFAULT {self._columns}",
            "drop": f"ALTER TABLE tags DROP COLUMN {name}",
            "type": f"ALTER TABLE tags ALTER COLUMN {name} TYPE bigint",
            "rename": f"ALTER TABLE tags RENAME COLUMN {name} TO {new}",
        }
        connection.execute(cast(LiteralString, statements[way]))
        if way in ("add", "default", "rename"):
            connection.execute(cast(LiteralString, f"UPDATE tags SET {new} = length(name) WHERE kind = 'a'"))
        self._insert_tag(connection)

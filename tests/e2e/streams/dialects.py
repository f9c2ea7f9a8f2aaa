"""The workload's statements, where databases write them differently."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """``schema`` are the workload's tables, ``truncates`` empties two of them, ``many`` inserts readings with the
    numbers ``{first}`` to ``{last}``, ``retypes`` makes a column ``{name}`` of `tags` longer. ``cascades``: whether a
    customer's new key reaches the rows that refer to it by itself."""

    schema: str
    truncates: tuple[str, ...]
    uuid: str
    upsert: str
    many: str
    retypes: str
    cascades: bool


POSTGRES = Dialect(
    schema="""
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
""",
    truncates=("TRUNCATE documents, tags",),
    uuid="gen_random_uuid()",
    upsert="ON CONFLICT (kind, name) DO UPDATE SET weight = excluded.weight",
    many="SELECT g, '2026-01-01', g FROM generate_series({first}::bigint, {last}::bigint) g",
    retypes="ALTER COLUMN {name} TYPE bigint",
    cascades=True,
)
#: InnoDB does not log what a foreign key changes by itself.
MYSQL = Dialect(
    schema="""
    CREATE TABLE customers (id bigint PRIMARY KEY, name varchar(60) NOT NULL, score numeric(12,2), joined timestamp(6));
    CREATE TABLE addresses (id bigint PRIMARY KEY, customer_id bigint NOT NULL, street text, code uuid);
    CREATE TABLE products (id int PRIMARY KEY, title varchar(40), price numeric(10,2), description mediumtext);
    CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint NOT NULL, state varchar(20), total numeric(12,2),
        at datetime);
    CREATE TABLE "lines" (order_id bigint REFERENCES orders (id), number int, product_id int NOT NULL
        REFERENCES products (id), amount int, note text, PRIMARY KEY (order_id, number));
    CREATE TABLE payments (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES orders (id), amount numeric(12,2),
        is_settled boolean);
    CREATE TABLE documents (id varchar(60) PRIMARY KEY, title text, body mediumtext, extra mediumtext, version int);
    CREATE TABLE tags (kind varchar(10), name varchar(60), weight double precision, PRIMARY KEY (kind, name));
    CREATE TABLE readings (id bigint, day date, value double precision, PRIMARY KEY (id, day)) PARTITION BY RANGE
        COLUMNS (day) (PARTITION old VALUES LESS THAN ('2026-01-01'), PARTITION new VALUES LESS THAN ('2100-01-01'));
""",
    truncates=("TRUNCATE documents", "TRUNCATE tags"),
    uuid="UUID()",
    upsert="ON DUPLICATE KEY UPDATE weight = VALUES(weight)",
    many="SELECT seq, '2026-01-01', seq FROM seq_{first}_to_{last}",
    retypes="MODIFY COLUMN {name} bigint",
    cascades=False,
)

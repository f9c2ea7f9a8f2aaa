"""How long anything may wait for an object store or an engine, in seconds. Databases have a module of their own,
:mod:`flowctl.connectors.bounds`.

Each client of a store tries again by itself, so a bound here is that of one request: a store that takes requests and
never answers is given up after some five minutes. The state's own client (:mod:`flowctl.storage.objects`) is stricter,
because the lease must be renewed in time.
"""

from __future__ import annotations

#: To connect to a store, TLS included.
STORE_CONNECT = 10
#: No byte comes back.
STORE_SILENCE = 30
#: One request of ``deltalake`` as a whole, its body included: these are parts of files, of some megabytes.
STORE_REQUEST = 60
#: Of ``deltalake`` and of Hadoop.
STORE_TRIES = 3
#: Of botocore, for each of the five of s3fs.
STORE_CLIENT_TRIES = 2

#: A Spark Connect server that has said nothing for so long is asked whether it is there. grpc-java takes clients that
#: ask more often than every 300 s for attackers, and hangs up.
SERVER_SILENCE = 310
#: So long for the answer; also to reach a server.
SERVER_ANSWER = 20

#: An engine of our own is asked every so often whether it is there, and ended after so long without an answer: a full
#: garbage collection of a large heap takes a minute.
ENGINE_PING = 15.0
ENGINE_SILENCE = 300.0
#: Until its process says where it can be reached.
ENGINE_START = 300.0
#: Until Sail forgets a session that asks nothing. This process may land a source for hours before it asks again; Sail
#: ends with it.
ENGINE_IDLE = 30 * 24 * 3600

#: After a signal: for what is under way to end by itself, well inside the 30 that a container gets; …
GRACE = 12.0
#: … until engines that have not ended what they do are given up; …
ABANDON = 19.0
#: … and until this process ends, whatever it waits for.
LAST = 26.0

"""How long anything may wait for an object store or an engine, in seconds. Databases have their own module,
:mod:`flowctl.connectors.sql.bounds`.

Each client of a store retries by itself, so a bound here applies to one request: a store that accepts requests and
never answers is abandoned after about five minutes. The state's own client (:mod:`flowctl.storage.objects`) is
stricter, because the lease must be renewed in time.
"""

from __future__ import annotations

#: Connecting to a store, including TLS.
STORE_CONNECT = 10
#: Without receiving a byte.
STORE_SILENCE = 30
#: One request of ``deltalake`` as a whole, including its body: parts of files, a few megabytes each.
STORE_REQUEST = 60
#: Attempts of ``deltalake`` and of Hadoop.
STORE_TRIES = 3
#: Attempts of botocore, for each of the five of s3fs.
STORE_CLIENT_TRIES = 2

#: After this long without a message, a Spark Connect server is pinged. grpc-java takes clients that ping more often
#: than every 300 s for attackers, and disconnects them.
SERVER_SILENCE = 310
#: For the answer; also for reaching a server.
SERVER_ANSWER = 20

#: flowctl's own engine is pinged at this interval, and ended after this long without an answer: a full garbage
#: collection of a large heap takes a minute.
ENGINE_PING = 15.0
ENGINE_SILENCE = 300.0
#: Until its process reports its address.
ENGINE_START = 300.0
#: Until Sail drops an idle session. This process may land a source for hours between two requests; Sail ends with it.
ENGINE_IDLE = 30 * 24 * 3600

#: After a signal: for work in progress to end by itself, well within the 30 s that a container gets; …
GRACE = 12.0
#: … until engines that are still busy are abandoned; …
ABANDON = 19.0
#: … and until this process ends, whatever it waits for.
LAST = 26.0

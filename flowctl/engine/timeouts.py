"""How long anything may wait for an engine, in seconds."""

from __future__ import annotations

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

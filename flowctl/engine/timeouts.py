"""How long anything may wait for an engine, in seconds."""

from __future__ import annotations

#: After this long without a message, a Spark Connect server is pinged. grpc-java disconnects clients that ping more
#: often than every 300 s, as a protection against attacks.
SERVER_SILENCE = 310
#: Timeout for the response to a ping; also for connecting to a server.
SERVER_ANSWER = 20

#: flowctl's own engine is pinged at the first interval, and killed after the second without a response: a full garbage
#: collection of a large heap takes a minute.
ENGINE_PING = 15.0
ENGINE_SILENCE = 300.0
#: Timeout until the engine's process reports its address.
ENGINE_START = 300.0
#: Time after which Sail drops an idle session. This process may read a source for hours between two requests; Sail ends
#: with it anyway.
ENGINE_IDLE = 30 * 24 * 3600

#: After a signal, all well within the 30 s that a container gets: when work in progress is interrupted; …
GRACE = 12.0
#: … when engines that are still busy are abandoned; …
ABANDON = 19.0
#: … and when this process ends, whatever it is waiting for.
LAST = 26.0

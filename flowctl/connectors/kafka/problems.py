"""What a client of the cluster reports, in flowctl's words.

A call that fails says only that no broker answers. Why is told beside, to a callback: a certificate, a password.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flowctl.errors import FlowctlError, TableError, TransientError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

#: Where the client puts the connection and its state around the text.
_AROUND = re.compile(r"^(?:\w+://)?[^\s:]+:\d+/\w+: | \(after \d+ms in state \w+\)$")
_SECONDS = 5.0
_HINTS: Mapping[str, str] = {
    "TOPIC_AUTHORIZATION_FAILED": "Let this user DESCRIBE and READ the topic",
    "CLUSTER_AUTHORIZATION_FAILED": "Let this user DESCRIBE the cluster",
    "UNKNOWN_TOPIC_OR_PART": "Check whether the topic was deleted meanwhile, and plan again",
}


def translated(error: KafkaError, brokers: str, settings: Mapping[str, Any]) -> FlowctlError:
    """Whatever another attempt may cure is transient."""
    from confluent_kafka import KafkaError as Code

    if cause := cause_of([error], brokers, settings):
        return cause
    away = {Code._ALL_BROKERS_DOWN, Code._TRANSPORT, Code._TIMED_OUT, Code._RESOLVE, Code._TIMED_OUT_QUEUE}
    away |= {Code._MSG_TIMED_OUT}
    away |= {Code._DESTROY, Code._DESTROY_BROKER}  # the connection over which an answer was expected is gone
    if error.code() in away:
        is_plain = settings.get("security.protocol") == "PLAINTEXT"
        tls = "; if they expect TLS, set `tls: true`" if is_plain else ""
        return TransientError(
            f"no broker of {brokers} answers: {error.str()}",
            hint=f"Check `brokers`, and whether this machine reaches each address that the brokers advertise{tls}",
        )
    if error.code() == Code._INVALID_ARG:
        return TableError(f"Kafka's client refuses a setting: {error.str()}", hint=_of_setting(error.str()))
    if error.retriable():
        return TransientError(f"Kafka says: {error.str()}", hint="Try again when the cluster has settled")
    return TableError(f"Kafka says: {error.str()}", hint=_HINTS.get(error.name(), "Look at the brokers' logs"))


def cause_of(reported: Iterable[KafkaError], brokers: str, settings: Mapping[str, Any]) -> FlowctlError | None:
    """The first of the reported errors that tells why no connection comes about."""
    from confluent_kafka import KafkaError as Code

    for error in reported:
        text = _AROUND.sub("", error.str())
        if error.code() == Code._AUTHENTICATION:
            return _authentication(text, brokers)
        if "certificate verify failed" in text:
            return TableError(
                f"the certificate of {brokers} is not accepted: {_why_not_accepted(brokers, settings)}",
                hint="Check `tls.ca`: it must contain the authority that has signed the brokers' certificates",
            )
        if "alert" in text and "certificate" in text:
            return TableError(
                f"{brokers} does not accept the certificate of this client, or asks for one: {_alert(text)}",
                hint="Check `tls.certificate`: whether it has expired, and whether the brokers trust its authority",
            )
        if "PLAINTEXT broker listener" in text:
            return TableError(f"{brokers} does not speak TLS", hint="Use the port of its TLS listener, or remove `tls`")
    return None


def _authentication(text: str, brokers: str) -> FlowctlError:
    if "OAUTHBEARER token" in text:
        what = text.partition("token: ")[2] or text
        if "connect" in what.lower() or "resolve" in what.lower() or "timed out" in what.lower():
            return TransientError(f"no token for {brokers}: {what}", hint="Check whether `sasl.token_url` answers")
        return TableError(f"no token for {brokers}: {what}", hint="Check `sasl`: who asks for the token, and its scope")
    if "Unsupported SASL mechanism" in text or "SASL state" in text:
        return TableError(
            f"{brokers} does not authenticate this way: {text}",
            hint="Set `sasl.mechanism` to one that this listener has, or use the port of another listener",
        )
    return TableError(f"{brokers} refuses to authenticate this user: {text}", hint="Check `sasl`: name and password")


def _of_setting(text: str) -> str:
    for name, option in {"ssl.ca": "ca", "ssl.certificate": "certificate", "ssl.key": "key"}.items():
        if name in text:
            password = ", and `tls.key_password`" if option == "key" else ""
            return f"Check `tls.{option}`: whether it is PEM, and can be read{password}"
    return "Check the connection's options"


def _alert(text: str) -> str:
    return text.partition("alert ")[2].partition(":")[0] or text


def _why_not_accepted(brokers: str, settings: Mapping[str, Any]) -> str:
    """Why Python's TLS does not accept the first broker's certificate: Kafka's client says only that it does not."""
    host, _, port = brokers.partition(",")[0].strip().rpartition(":")
    try:
        trusted = ssl.create_default_context(cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem"))
        trusted.check_hostname = settings.get("ssl.endpoint.identification.algorithm") != "none"
        with socket.create_connection((host, int(port)), _SECONDS) as plain:
            trusted.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.rstrip(".")
    except (OSError, ValueError) as error:
        return f"it cannot be verified ({error})"
    return "it cannot be verified"

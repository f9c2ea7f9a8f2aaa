"""Every way to authenticate, against a real broker; and what is said when it refuses."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from pyspark import cloudpickle

from flowctl.connectors.kafka import CAPABILITIES
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.security import security_settings, with_contents
from flowctl.connectors.kafka.source import KafkaSource
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.model.table_info import ObjectName
from tests.connectors.sinks import Rows
from tests.e2e.flows import Flow
from tests.services import kafka, kafka_security
from tests.services.kafka_security import KEY_PASSWORD, PASSWORD, USER, make_secured, token_server
from tests.services.processes import HOST, free_port

PLAIN = {"mechanism": "PLAIN", "username": USER, "password": PASSWORD}
CA = {"ca": "ca.pem"}


@dataclass(frozen=True)
class Place:
    """A broker with a listener for each way, and the folder of its certificates."""

    folder: Path
    ports: Mapping[str, int]
    plain: str
    token_url: str

    def cluster(self, listener: str, **options: Any) -> Cluster:
        address = f"{HOST}:{self.ports[listener]}" if listener else self.plain
        return Cluster(address, security_settings({"brokers": address, **options}, str(self.folder)))

    def oauth(self, **changed: str) -> dict[str, str]:
        known = {"token_url": self.token_url, "client_id": USER, "client_secret": PASSWORD, "scope": "kafka"}
        return {"mechanism": "OAUTHBEARER", **known, **changed}

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("certificates")
    with token_server() as tokens:
        made = make_secured(folder, tokens)
        with kafka.broker(made) as broker, broker.started() as address:
            kafka.create_topic(address, "clicks")
            kafka.send(address, "clicks", [b"one", b"two"])
            yield Place(folder, made.ports, address, tokens.url)


def must_read(cluster: Cluster) -> None:
    """Both clients, the one that asks and the one that reads, are let in."""
    found = cluster.topics(["clicks"])["clicks"]
    assert (
        cluster.offsets([found], "latest")["clicks"].messages_since(cluster.offsets([found], "earliest")["clicks"]) == 2
    )
    consumer = cluster.consumer()
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition("clicks", 0, 0)])
    try:
        taken: list[bytes] = []
        while len(taken) < 2:
            taken += [one.value() for one in consumer.consume(2, timeout=10) if one.error() is None]
    finally:
        consumer.close()
    assert taken == [b"one", b"two"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("listener", "tls"), [("SASL", CA), ("OPEN", False)])
def test_with_a_password(secured: Place, listener: str, tls: Any, mechanism: str) -> None:
    must_read(secured.cluster(listener, tls=tls, sasl={**PLAIN, "mechanism": mechanism}))


def test_with_tls(secured: Place) -> None:
    must_read(secured.cluster("TLS", tls=CA))
    must_read(secured.cluster("TLS", tls={"ca": secured.text("ca.pem")}))


def test_with_the_clients_certificate(secured: Place) -> None:
    must_read(secured.cluster("MUTUAL", tls={**CA, "certificate": "client.pem", "key": "client.key"}))
    texts = {"ca": secured.text("ca.pem"), "certificate": secured.text("client.pem"), "key": secured.text("client.key")}
    must_read(secured.cluster("MUTUAL", tls=texts))
    locked = {**CA, "certificate": "locked.pem", "key": secured.text("locked.key"), "key_password": KEY_PASSWORD}
    must_read(secured.cluster("MUTUAL", tls=locked))


def test_tasks_elsewhere_need_no_files(secured: Place) -> None:
    """The texts of certificates travel with the credentials."""
    mutual = secured.cluster("MUTUAL", tls={**CA, "certificate": "client.pem", "key": "client.key"})
    password = secured.cluster("SASL", tls=CA, sasl={**PLAIN, "mechanism": "SCRAM-SHA-512"})
    for cluster in (mutual, password, secured.cluster("OAUTH", tls=CA, sasl=secured.oauth())):
        security = with_contents(cluster.security)
        assert not any(str(secured.folder) in str(value) for value in security.values())
        must_read(Cluster(cluster.brokers, cloudpickle.loads(cloudpickle.dumps(security))))


def test_with_a_token(secured: Place) -> None:
    must_read(secured.cluster("OAUTH", tls=CA, sasl=secured.oauth()))


REFUSED = {
    "wrong password": (
        "SASL",
        {"tls": CA, "sasl": {**PLAIN, "password": "hunter2"}},
        "refuses to authenticate this user",
    ),
    "wrong password, SCRAM": (
        "SASL",
        {"tls": CA, "sasl": {**PLAIN, "mechanism": "SCRAM-SHA-512", "password": "hunter2"}},
        "refuses to authenticate this user",
    ),
    "other mechanism": ("OAUTH", {"tls": CA, "sasl": PLAIN}, "supported mechanisms: OAUTHBEARER"),
    "no authentication there": ("TLS", {"tls": CA, "sasl": PLAIN}, "does not authenticate this way"),
    "unknown authority": ("TLS", {"tls": {"ca": "other.pem"}}, "is not accepted: unable to get local issuer"),
    "the system's authorities": ("TLS", {"tls": True}, "is not accepted: unable to get local issuer"),
    "expired broker": ("EXPIRED", {"tls": CA}, "is not accepted: certificate has expired"),
    "no certificate": ("MUTUAL", {"tls": CA}, "does not accept the certificate of this client, or asks for one"),
    "expired client": (
        "MUTUAL",
        {"tls": {**CA, "certificate": "expired.pem", "key": "expired.key"}},
        "does not accept the certificate of this client",
    ),
    "client of another authority": (
        "MUTUAL",
        {"tls": {**CA, "certificate": "stranger.pem", "key": "stranger.key"}},
        "does not accept the certificate of this client",
    ),
    "no TLS there": ("", {"tls": CA}, "does not speak TLS"),
    "wrong key password": (
        "MUTUAL",
        {"tls": {**CA, "certificate": "locked.pem", "key": "locked.key", "key_password": "hunter2"}},
        "refuses a setting",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_no_passing_failure(secured: Place, case: str) -> None:
    listener, options, words = REFUSED[case]
    with pytest.raises(TableError) as refused:
        secured.cluster(listener, **options).greet()
    assert words in refused.value.message
    assert refused.value.hint
    assert not isinstance(refused.value, TransientError)
    assert "hunter2" not in refused.value.sentences


def test_a_token_that_is_refused_and_a_server_that_does_not_answer(secured: Place) -> None:
    wrong = secured.cluster("OAUTH", tls=CA, sasl=secured.oauth(client_secret="hunter2"))
    with pytest.raises(TableError, match=r"no token for .*invalid_client") as refused:
        wrong.greet()
    assert "hunter2" not in refused.value.sentences
    away = secured.cluster("OAUTH", tls=CA, sasl=secured.oauth(token_url=f"http://{HOST}:{free_port()}/token"))
    with pytest.raises(TransientError, match=r"no token for .*connect") as waiting:
        away.greet()
    assert waiting.value.hint == "Check whether `sasl.token_url` answers"


@pytest.mark.full
def test_without_tls_at_a_listener_with_tls(secured: Place) -> None:
    with pytest.raises(TransientError) as refused:
        secured.cluster("TLS").greet()
    assert (refused.value.hint or "").endswith("if they expect TLS, set `tls: true`")


def test_a_password_that_changes_while_a_topic_is_read(secured: Place) -> None:
    cluster = secured.cluster("SASL", tls=CA, sasl={**PLAIN, "password": "hunter2"})
    consumer = cluster.consumer()
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition("clicks", 0, 0)])
    try:
        with pytest.raises(TableError, match="refuses to authenticate"):
            while True:
                consumer.consume(1, timeout=0.5)
                cluster.require_connection()
    finally:
        consumer.close()


def test_the_command_line_tells_it_and_no_secret(secured: Place, tmp_path: Path) -> None:
    flow = Flow(tmp_path, {"KAFKA_PASSWORD": PASSWORD, "KAFKA_CA": secured.text("ca.pem")})
    sasl = f"{{mechanism: SCRAM-SHA-256, username: {USER}, password: '${{secret:env:KAFKA_PASSWORD}}'}}"
    tls = "{ca: '${secret:env:KAFKA_CA}'}"
    flow.write(
        f"""version: 1
flow: shop
state: state
connections:
  bus: {{type: kafka, brokers: "{HOST}:{secured.ports["SASL"]}", tls: {tls}, sasl: {sasl}}}
  out: {{type: sqlite, path: out.db}}
tables:
  clicks: {{from: bus:clicks, to: out, mode: append}}
"""
    )
    assert "at most 2 messages" in flow.run("plan", "flow.yaml", expect=0).words
    assert "Kafka cluster" in flow.run("doctor", "flow.yaml", expect=0).words
    refused = flow.run("plan", "flow.yaml", "--verbose", env={"KAFKA_PASSWORD": "hunter2"}, expect=4)
    assert "refuses to authenticate this user" in refused.words
    assert "Check `sasl`: name and password" in refused.words
    assert "hunter2" not in refused.words


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"tls\.key: there is no file .*none\.key"):
        security_settings({"brokers": "b:1", "tls": {"key": "none.key"}}, str(tmp_path))


@pytest.mark.parametrize(
    ("brokers", "region"),
    [
        ("b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com:9098,b-2:9098", None),
        ("boot-abc.c1.kafka-serverless.eu-west-1.amazonaws.com:9098", None),
        ("proxy.example:9098", "eu-west-1"),
    ],
)
def test_a_token_for_msk_is_a_signed_request_of_its_region(
    monkeypatch: pytest.MonkeyPatch, brokers: str, region: str | None
) -> None:
    """The token as the signer of AWS makes it; no cluster of MSK can be asked here."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    sasl = {"mechanism": "AWS_MSK_IAM", **({"region": region} if region else {})}
    settings = security_settings({"brokers": brokers, "tls": True, "sasl": sasl}, ".")
    assert (settings["security.protocol"], settings["sasl.mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    token, _ = settings["oauth_cb"]("")
    signed = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    assert signed.hostname == "kafka.eu-west-1.amazonaws.com"
    assert parse_qs(signed.query)["Action"] == ["kafka-cluster:Connect"]
    assert "AKIDEXAMPLE" in parse_qs(signed.query)["X-Amz-Credential"][0]


def test_an_empty_map_encrypts() -> None:
    sasl = {"mechanism": "PLAIN", "username": USER, "password": PASSWORD}
    assert security_settings({"brokers": "b:1", "tls": {}, "sasl": sasl}, ".")["security.protocol"] == "SASL_SSL"


def test_a_certificate_with_text_before_it(secured: Place) -> None:
    must_read(secured.cluster("TLS", tls={"ca": "Bag Attributes\n" + secured.text("ca.pem")}))
    with pytest.raises(TableError, match="neither the path of a file nor PEM text"):
        secured.cluster("TLS", tls={"ca": "one\ntwo"})


def test_a_region_that_nobody_knows() -> None:
    with pytest.raises(FlowctlError) as refused:
        security_settings({"brokers": "b:1", "sasl": {"mechanism": "AWS_MSK_IAM"}}, ".")
    assert refused.value.hint == "Set sasl.region"


@pytest.mark.full
def test_reading_takes_no_right_to_a_consumer_group() -> None:
    """Kafka's client looks for the coordinator of a group even where none is used."""
    secured = kafka_security.restricted()
    with kafka.broker(secured) as made, made.started() as address:
        kafka.create_topic(address, "clicks")
        kafka.send(address, "clicks", [b"1", b"2"])
        own = {"mechanism": "PLAIN", "username": kafka_security.USER, "password": kafka_security.PASSWORD}
        options = {"brokers": f"{HOST}:{secured.ports['OPEN']}", "sasl": own}
        source = KafkaSource(Cluster(options["brokers"], security_settings(options, ".")), CAPABILITIES)
        wanted = Relation(ObjectName(("clicks",)))
        with pytest.raises(TableError, match="uthoriz"):
            source.describe([wanted])
        kafka.allow(address, kafka_security.USER, "TOPIC", "clicks", "DESCRIBE", "READ")
        info = source.describe([wanted])[wanted]
        assert info is not None
        rows = Rows()
        with source.capture(wanted, info) as capture:
            capture.read(ReadRequest(info.columns), rows)
        assert [row["value"] for row in rows.rows()] == [b"1", b"2"]

"""Webhook endpoints: where the messages of a queue go.

1. An endpoint consumes a queue, made with it if it is not there; a queue has one endpoint at most, and stays
   while it has it.
2. Attempts, rate and ordering are settings of the queue, and of nothing else.
3. Fields can be changed and taken back; what is bad is refused by its name, and nothing is changed.
4. Secrets are taken sealed only, and shown to dispatchers only; several sign at once while one replaces
   another.
5. A URL names a public address, or one that the endpoint allows, and can be read one way only.
6. Every change is announced, once.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row

URL = "https://example.com/hooks"
SEALED = "hfs1.0123abcd.c2VhbGVk"
OTHER = "hfs1.0123abcd.b3RoZXI"
TABLES = ("endpoint", "endpoint_secret", "endpoint_breaker", "endpoint_event", "queue")


def create(engine: Engine, endpoint: Any = "shop", queue: Any = None, **config: Any) -> bool:
    made = engine.value("create_endpoint", endpoint=endpoint, config={"url": URL} | config, queue=queue)
    return bool(made)


def configure(engine: Engine, **config: Any) -> Any:
    return engine.value("configure_endpoint", endpoint="shop", config=config)


def target(engine: Engine, endpoint: str = "shop") -> Row:
    return engine.row("dispatch_endpoints", endpoints=[endpoint])


def stored(engine: Engine) -> Any:
    query = "select " + ", ".join(
        f"(select coalesce(jsonb_agg(to_jsonb(t) order by to_jsonb(t)), '[]') from holdfast.{table} t)"
        for table in TABLES
    )
    return engine.conn.execute(query.encode()).fetchone()


@pytest.fixture(scope="module")
def shop(refusing: Engine) -> Engine:
    """A database with one endpoint, for calls that change nothing."""
    create(refusing, signing_secret=OTHER)
    return refusing


def test_an_endpoint_is_made_with_its_queue_and_the_defaults(engine: Engine) -> None:
    made = create(engine)

    info = engine.row("endpoint_info", endpoint="shop")
    assert made
    assert (info["queue"], info["url"], info["enabled"], info["secrets"]) == ("shop", URL, True, [])
    assert info["config"] == {
        "method": "POST",
        "headers": {},
        "timeout": 10,
        "connect_timeout": 5,
        "retry": {
            "strategy": "exponential",
            "base": 10,
            "factor": 2,
            "increment": 30,
            "cap": 300,
            "jitter": 0.1,
            "retry_after": True,
            "max_attempts": 10,
        },
        "concurrency": 10,
        "rate_limit": None,
        "ordering": "none",
        "cloudevents": "off",
        "cloudevents_type": None,
        "cloudevents_source": "/holdfast",
        "capture_response": False,
        "capture_limit": 65536,
        "disable_on_gone": True,
        "allow": [],
        "breaker": {"threshold": 10, "cooldown": 30},
        "keep_attempts": 604800,
        "auth": None,
    }
    assert engine.row("queue_info", queue="shop")["config"] == {"max_deliveries": 10}
    assert [row["endpoint"] for row in engine.rows("endpoints")] == ["shop"]
    assert engine.rows("endpoint_info", endpoint="none") == []


def test_what_is_the_queues_is_kept_by_the_queue(engine: Engine) -> None:
    engine.create("orders", lease="1 min")

    create(engine, queue="orders", rate_limit=5, ordering="key", retry={"max_attempts": 3})
    engine.value("configure_queue", queue="orders", config={"throughput_limit": 7})
    config = target(engine)["config"]
    back = configure(engine, rate_limit=None, retry={"max_attempts": None}, ordering=None)

    assert (config["rate_limit"], config["ordering"], config["retry"]["max_attempts"]) == (7, "key", 3)
    assert (back["rate_limit"], back["ordering"], back["retry"]["max_attempts"]) == (None, "none", 10)
    assert engine.row("queue_info", queue="orders")["config"] == {"lease": "1 min", "max_deliveries": 10}


def test_a_queue_that_is_there_stays_as_it_is(engine: Engine) -> None:
    engine.create("orders", max_deliveries=2)

    create(engine, queue="orders")

    assert engine.row("queue_info", queue="orders")["config"] == {"max_deliveries": 2}
    assert target(engine)["config"]["retry"]["max_attempts"] == 2


def test_the_same_endpoint_once_more_is_none_and_another_is_refused(engine: Engine) -> None:
    create(engine, timeout="20 s", retry={"base": 1}, rate_limit=5)
    before = stored(engine)

    again = create(engine, timeout=20, retry={"base": "1 s"}, rate_limit=5, concurrency=None)
    for config in (
        {"timeout": 30},
        {"url": "https://example.org/"},
        {"auth": {"type": "bearer", "token": SEALED}},
    ):
        with pytest.raises(psycopg.Error) as error:
            create(engine, **{"timeout": 20, "retry": {"base": 1}, "rate_limit": 5} | config)
        assert error.value.sqlstate == "QH871"

    assert not again
    assert stored(engine) == before


def test_connecting_takes_no_longer_than_the_whole(engine: Engine) -> None:
    create(engine, timeout=3)

    assert target(engine)["config"]["connect_timeout"] == 3


def test_fields_are_changed_and_taken_back(engine: Engine) -> None:
    create(
        engine, timeout=20, headers={"x-a": "1"}, retry={"base": 1, "cap": "1 min"}, breaker={"threshold": 3}
    )

    configure(engine, url="https://example.org", timeout=None, retry={"cap": None, "strategy": "linear"})
    config = configure(engine, breaker={"cooldown": "1 min"}, headers=None)

    assert target(engine)["url"] == "https://example.org"
    assert (config["timeout"], config["headers"], config["breaker"]) == (
        10,
        {},
        {"threshold": 3, "cooldown": 60},
    )
    assert config["retry"] == {
        "strategy": "linear",
        "base": 1,
        "factor": 2,
        "increment": 30,
        "cap": 300,
        "jitter": 0.1,
        "retry_after": True,
        "max_attempts": 10,
    }
    assert configure(engine, retry=None)["retry"]["strategy"] == "exponential"


def test_secrets_are_for_dispatchers_alone(engine: Engine) -> None:
    create(engine, signing_secret=SEALED, auth={"type": "basic", "username": "u", "password": OTHER})

    told = target(engine)
    info = engine.row("endpoint_info", endpoint="shop")
    shown = [str(info), str(engine.rows("endpoints")), str(configure(engine, timeout=3))]

    assert told["secrets"] == [SEALED]
    assert told["auth"] == {"type": "basic", "username": "u", "password": OTHER}
    assert info["config"]["auth"] == {"type": "basic", "username": "u"}
    assert [set(secret) for secret in info["secrets"]] == [{"id", "created_at", "expires_at"}]
    assert all(SEALED not in text and OTHER not in text for text in shown)
    assert configure(engine, auth=None, signing_secret=None)["auth"] is None
    assert (target(engine)["secrets"], target(engine)["auth"]) == ([], None)


def test_old_secrets_sign_too_until_the_overlap_is_over(engine: Engine) -> None:
    create(engine, signing_secret="hfs1.0123abcd.0")

    until = [
        engine.value("rotate_secret", endpoint="shop", sealed=f"hfs1.0123abcd.{n}", overlap=f"{n} h")
        for n in (1, 2)
    ]
    both = target(engine)["secrets"]
    engine.at(T0 + timedelta(minutes=90))
    later = target(engine)["secrets"]
    engine.value("rotate_secret", endpoint="shop", sealed="hfs1.0123abcd.3", overlap="0 s")

    assert until == [T0 + timedelta(hours=1), T0 + timedelta(hours=2)]
    assert both == ["hfs1.0123abcd.2", "hfs1.0123abcd.1", "hfs1.0123abcd.0"]
    assert later == ["hfs1.0123abcd.2", "hfs1.0123abcd.1"]
    assert target(engine)["secrets"] == ["hfs1.0123abcd.3"]


def test_five_secrets_sign_at_most(engine: Engine) -> None:
    create(engine)

    for n in range(8):
        engine.value("rotate_secret", endpoint="shop", sealed=f"hfs1.0123abcd.{n}")

    assert target(engine)["secrets"] == [f"hfs1.0123abcd.{n}" for n in (7, 6, 5, 4, 3)]


def test_an_endpoint_is_disabled_with_a_reason_and_enabled_again(engine: Engine) -> None:
    create(engine)

    off = [engine.value("disable_endpoint", endpoint="shop", reason=reason) for reason in ("closing", "late")]
    info = engine.row("endpoint_info", endpoint="shop")
    engine.at(T0 + timedelta(seconds=1))
    on = [engine.value("enable_endpoint", endpoint="shop") for _ in range(2)]

    assert (off, on) == ([True, False], [True, False])
    assert (info["enabled"], info["disabled_reason"], info["disabled_at"]) == (False, "closing", T0)
    assert engine.row("endpoint_info", endpoint="shop")["disabled_reason"] is None
    assert [(row["event"], row["reason"]) for row in engine.rows("endpoint_events", endpoint="shop")] == [
        ("enabled", None),
        ("disabled", "closing"),
    ]


def test_a_queue_has_one_endpoint_and_stays_while_it_has_it(engine: Engine) -> None:
    create(engine)
    engine.send(1, queue="shop")

    with pytest.raises(psycopg.Error, match=r'"shop" consumes the queue "shop" \[QH875\]'):
        create(engine, "other", "shop")
    with pytest.raises(psycopg.Error, match=r'"shop" consumes the queue "shop" \[QH875\]'):
        engine.value("drop_queue", queue="shop")
    dropped = [engine.value("drop_endpoint", endpoint="shop") for _ in range(2)]

    assert dropped == [True, False]
    assert engine.stats("shop")["ready"] == 1
    assert create(engine, "other", "shop")
    assert engine.value("drop_endpoint", endpoint="other", with_queue=True)
    assert engine.rows("queue_info", queue="shop") == []


def test_a_log_has_no_endpoint(engine: Engine) -> None:
    engine.create("log", kind="log")

    for config in ({}, {"rate_limit": 3}):
        with pytest.raises(psycopg.Error) as error:
            create(engine, queue="log", **config)
        assert error.value.sqlstate == "QH602"


def test_changes_are_announced_and_nothing_else(engine: Engine, open_engine: Open) -> None:
    listener = open_engine().conn
    listener.execute("listen holdfast_endpoint")

    create(engine)
    create(engine)
    configure(engine, timeout=3)
    engine.value("rotate_secret", endpoint="shop", sealed=SEALED)
    engine.value("enable_endpoint", endpoint="shop")
    engine.value("disable_endpoint", endpoint="shop")
    engine.value("drop_endpoint", endpoint="none")
    engine.value("drop_endpoint", endpoint="shop")
    create(engine, "last")

    heard = [notification.payload for notification in listener.notifies(timeout=10, stop_after=6)]
    assert heard == ["shop"] * 5 + ["last"]


def test_every_change_makes_another_version(engine: Engine) -> None:
    create(engine)

    versions = [target(engine)["version"]]
    configure(engine, timeout=3)
    versions.append(target(engine)["version"])
    engine.value("rotate_secret", endpoint="shop", sealed=SEALED)
    versions.append(target(engine)["version"])
    engine.value("disable_endpoint", endpoint="shop")
    versions.append(target(engine)["version"])

    assert versions == [1, 2, 3, 4]


BAD_FIELDS: dict[str, list[Any]] = {
    "method": ["TRACE", "post", 1],
    "headers": [
        [],
        {"a b": "c"},
        {"": "c"},
        {"Host": "x"},
        {"Webhook-Id": "x"},
        {"Authorization": "x"},
        {"Cookie": "x"},
    ],
    "headers.x": [{"x": 1}, {"x": "a\nb"}, {"x": "ü"}, {"x": " a"}],
    "timeout": [0, "5 min 1 s", "soon", True, [1]],
    "connect_timeout": [0, 61],
    "retry": [3, []],
    "retry.strategy": [{"strategy": "none"}],
    "retry.base": [{"base": -1}, {"base": "x"}],
    "retry.cap": [{"cap": "31 days"}],
    "retry.increment": [{"increment": -1}],
    "retry.factor": [{"factor": 0}, {"factor": "2"}],
    "retry.jitter": [{"jitter": 1.5}],
    "retry.max_attempts": [{"max_attempts": 1001}, {"max_attempts": 1.5}],
    "retry.retry_after": [{"retry_after": 1}],
    "retry.speed": [{"speed": 1}],
    "auth": ["u:p", {"type": "digest"}, {}],
    "auth.realm": [{"type": "bearer", "token": SEALED, "realm": "x"}],
    "auth.username": [
        {"type": "basic", "username": "a:b", "password": SEALED},
        {"type": "basic", "password": SEALED},
    ],
    "rate_limit": [0, "5", 1e7],
    "concurrency": [0, 1001, "3"],
    "ordering": ["fifo", True],
    "cloudevents": ["on", True],
    "cloudevents_type": ["", "ü", 3],
    "cloudevents_source": ["", "a b"],
    "capture_response": [1],
    "capture_limit": [-1, 65537],
    "disable_on_gone": ["yes"],
    "allow": ["10.0.0.0/8", ["10.0.0.0/33"], ["10/8"], ["a b"], [1], ["10.1"]],
    "breaker": [1],
    "breaker.threshold": [{"threshold": 0}],
    "breaker.cooldown": [{"cooldown": 0}],
    "breaker.speed": [{"speed": 0}],
    "keep_attempts": [1, "2 years"],
    "speed": [1],
}


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in BAD_FIELDS.items() for value in values]
)
def test_a_bad_field_is_refused_by_its_name_and_nothing_is_changed(
    shop: Engine, field: str, value: Any
) -> None:
    before = stored(shop)

    for call in (
        lambda: configure(shop, **{field.split(".")[0]: value}),
        lambda: create(shop, "b", **{field.split(".")[0]: value}),
    ):
        with pytest.raises(psycopg.Error) as error:
            call()
        assert error.value.sqlstate == "QH872"
        assert field.split(".")[0] in str(error.value.diag.message_primary)
        assert field in str(error.value)

    assert stored(shop) == before


@pytest.mark.parametrize(
    "config",
    [
        {"signing_secret": "whsec_topsecret"},
        {"signing_secret": 3},
        {"signing_secret": ""},
        {"signing_secret": "hfs1."},
        {"auth": {"type": "bearer", "token": "topsecret"}},
        {"auth": {"type": "bearer"}},
        {"auth": {"type": "basic", "username": "u", "password": "topsecret"}},
    ],
)
def test_a_secret_in_clear_is_refused_and_not_shown(shop: Engine, config: Any) -> None:
    before = stored(shop)

    with pytest.raises(psycopg.Error) as error:
        configure(shop, **config)

    assert error.value.sqlstate == "QH874"
    assert "topsecret" not in str(error.value)
    assert stored(shop) == before


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("QH870", {"endpoint": "none", "sealed": SEALED}),
        ("QH874", {"endpoint": "shop", "sealed": "topsecret"}),
        ("QH874", {"endpoint": "shop", "sealed": None}),
        ("QH872", {"endpoint": "shop", "sealed": SEALED, "overlap": "-1 s"}),
        ("QH872", {"endpoint": "shop", "sealed": SEALED, "overlap": "91 days"}),
    ],
)
def test_a_bad_rotation_changes_nothing(shop: Engine, code: str, arguments: Any) -> None:
    before = stored(shop)

    with pytest.raises(psycopg.Error) as error:
        shop.value("rotate_secret", **arguments)

    assert error.value.sqlstate == code
    assert stored(shop) == before


@pytest.mark.parametrize("name", [None, "", "a b", "x" * 201, "ü"])
def test_a_bad_name_is_refused(shop: Engine, name: Any) -> None:
    with pytest.raises(psycopg.Error) as error:
        create(shop, name)
    assert error.value.sqlstate == "QH872"


@pytest.mark.parametrize(
    "verb",
    [
        "configure_endpoint",
        "enable_endpoint",
        "disable_endpoint",
        "reset_breaker",
        "endpoint_health",
        "endpoint_events",
        "admit",
    ],
)
def test_an_endpoint_that_is_not_there_is_told(shop: Engine, verb: str) -> None:
    arguments: Row = {"config": {}} if verb == "configure_endpoint" else {}
    with pytest.raises(psycopg.Error) as error:
        shop.rows(verb, endpoint="none", **arguments)
    assert error.value.sqlstate == "QH870"


def whole(url: Any) -> Any:
    """The URL that is meant: in this file no host is named that is somebody's."""
    return url.replace("~", "//", 1) if isinstance(url, str) else url


@pytest.mark.parametrize(
    "url",
    [
        "https:~example.com",
        "http:~example.com:8080/a/b?c=d&e=%20",
        "HTTPS:~Example.COM/",
        "https:~8.8.8.8/x",
        "https:~[2606:4700::1111]:8443/",
        "https:~xn--bcher-kva.example/",
        "https:~a_b.example./x",
        "https:~10.example.com/",
    ],
)
def test_a_public_url_is_taken(shop: Engine, url: str) -> None:
    assert create(shop, "public", url=whole(url))
    assert shop.value("drop_endpoint", endpoint="public", with_queue=True)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        7,
        "example.com",
        "//example.com",
        "ftp:~example.com",
        "file:~/etc/passwd",
        "https:~",
        "https:~/x",
        "https:~user:topsecret@example.com/",
        "https:~user@example.com/",
        "https:~example.com:0/",
        "https:~example.com:65536/",
        "https:~example.com:x/",
        "https:~example.com#x",
        "https:~example.com/ x",
        "https:~exa mple.com/",
        "https:~example.com\\@127.0.0.1/",
        "https:~bücher.example/",
        "https:~-a.example/",
        "https:~a..example/",
        "https:~[::1/",
        "https:~[::1]x/",
        "https:~[1.2.3.4]/",
        "https:~8.8.8/",
        "https:~2130706433/",
        "https:~0x7f000001/",
        "https:~0177.0.0.1/",
        "https:~127.1/",
        "https:~127.0.0.1./",
        "https:~1.2.3.256/",
        "https:~example.com/" + "x" * 2048,
    ],
)
def test_a_url_that_is_none_or_reads_two_ways_is_refused(shop: Engine, url: Any) -> None:
    with pytest.raises(psycopg.Error) as error:
        create(shop, "other", url=whole(url))
    assert error.value.sqlstate == "QH872"
    assert "url" in str(error.value.diag.message_primary)
    assert "topsecret" not in str(error.value)


FORBIDDEN = [
    "127.0.0.1",
    "127.8.9.10",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "198.18.0.1",
    "[::1]",
    "[::]",
    "[::ffff:10.0.0.1]",
    "[::ffff:8.8.8.8]",
    "[64:ff9b::a00:1]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[2002:7f00:1::]",
    "[2001::1]",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "metadata.google.internal",
]


@pytest.mark.parametrize("host", FORBIDDEN)
def test_an_address_that_is_not_everybodys_is_refused(shop: Engine, host: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        create(shop, "near", url=f"http://{host}:8080/")
    assert error.value.sqlstate == "QH873"
    assert shop.rows("endpoint_info", endpoint="near") == []
    assert create(shop, "near", url=f"http://{host}:8080/", allow=[host.strip("[]").lower()])
    assert shop.value("drop_endpoint", endpoint="near", with_queue=True)


def test_an_address_stays_allowed_only_while_the_list_says_so(engine: Engine) -> None:
    create(engine, url=whole("http:~10.1.2.3/"), allow=["10.0.0.0/8", "intranet"])
    before = stored(engine)

    for config in ({"allow": ["10.2.0.0/16"]}, {"allow": None}, {"url": "http://127.0.0.1/"}):
        with pytest.raises(psycopg.Error) as error:
            configure(engine, **config)
        assert error.value.sqlstate == "QH873"

    assert stored(engine) == before

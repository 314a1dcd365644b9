"""Which errors a route may answer with, by code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .endpoint import Endpoint

ALWAYS = ("QH910", "QH911", "QH917", "QH918", "QH921", "QH930", "QH931", "QH932")  # of any request
WITH_KEY = ("QH920", "QH922")
WITH_QUEUE = ("QH101", "QH103")  # where the path names one
WITH_BODY = ("QH912", "QH913")

SENDING = "QH106 QH201 QH202 QH203 QH204 QH205 QH206 QH207 QH209 QH210 QH220 QH221 QH222 QH240 QH241 QH604"
PUBLISHING = SENDING.replace("QH106 ", "").replace("QH240 ", "").replace(" QH604", "") + " QH876"
CLAIMING = "QH207 QH301 QH302 QH602"

# What the engine refuses beside what holds for all; the codes are explained in docs/errors.md.
OF_VERBS: Mapping[str, str] = MappingProxyType(
    {
        "create_queue": "QH102 QH104",
        "configure_queue": "QH104 QH310 QH601 QH923",
        "configure_defaults": "QH104",
        "drop_queue": "QH109 QH875 QH885 QH923",
        "pause_queue": "QH602",
        "resume_queue": "QH602",
        "purge": "QH402 QH410 QH602",
        "send": SENDING,
        "browse": "QH401 QH402",
        "message": "QH924",
        "discard": "QH602",
        "discard_one": "QH602 QH924",
        "discard_key": "QH220 QH602",
        "claim": CLAIMING,
        "next": CLAIMING + " QH304",
        "ack": "QH304 QH602",
        "release": "QH304 QH602",
        "nack": "QH304 QH305 QH602",
        "reject": "QH304 QH602",
        "extend": "QH302 QH304 QH602",
        "create_endpoint": "QH102 QH103 QH104 QH310 QH602 QH840 QH871 QH872 QH873 QH874 QH875",
        "configure_endpoint": "QH104 QH310 QH840 QH870 QH872 QH873 QH874",
        "rotate_secret": "QH840 QH870 QH872 QH874",
        "enable_endpoint": "QH870",
        "disable_endpoint": "QH870",
        "reset_breaker": "QH870",
        "endpoint_info": "QH870",
        "endpoint_health": "QH421 QH870",
        "endpoint_events": "QH402 QH870",
        "endpoint_attempts": "QH401 QH402 QH870",
        "attempts": "QH402",
        "create_event_type": "QH106 QH877 QH878",
        "subscribe": "QH870 QH876 QH878",
        "subscriptions": "QH870 QH876",
        "publish": PUBLISHING,
        "publish_batch": PUBLISHING,
        "work": CLAIMING + " QH916",
        "held": "QH602",
        "holders": "QH602",
        "claims": "QH207 QH602",
        "leases": "QH402 QH602",
        "blocked_keys": "QH402 QH602",
        "unblock": "QH311 QH312 QH602",
        "why": "QH602",
        "samples": "QH421",
        "rollups": "QH402 QH421 QH803",
        "runs": "QH402",
        "read_archive": "QH402 QH411",
        "redrive": "QH105 QH402 QH403 QH602",
        "replay": "QH402 QH411 QH602",
        "set_schema": "QH106 QH107 QH108",
        "queue_schema": "QH925",
        "check_schema": "QH106",
        "set_seal_key": "QH110",
        "read": "QH402 QH603 QH605",
        "log_delete": "QH402 QH603 QH605",
        "log_stats": "QH603",
        "create_key": "QH701 QH901",
        "rotate_key": "QH901 QH902",
        "revoke_key": "QH902",
        "login": "QH920 QH922",
        "create_hook": "QH102 QH103 QH104 QH310 QH602 QH840 QH874 QH881 QH882",
        "configure_hook": "QH104 QH310 QH840 QH874 QH880 QH882",
        "rotate_hook": "QH840 QH874 QH880 QH881 QH882",
        "drop_hook": "QH885",
        "hook_info": "QH880",
        "hook_calls": "QH402 QH880",
        "receive": "QH201 QH202 QH207 QH209 QH222 QH240 QH840 QH841 QH880 QH883 QH884 QH912 QH913 QH922",
        "put_service": "QH840 QH850",
        "drop_service": "QH850 QH852",
        "create_service_queue": "QH851 QH860 QH862 QH863",
        "service_queues": "QH851 QH861",
        "delete_service_queue": "QH851 QH861",
        "retry_service_queue": "QH851 QH861 QH865",
        "sweep": "QH602",
        "maintain": "QH422",
        "repair": "QH101",
        "docs_file": "QH914",
        "take_rate": "QH701 QH702 QH703",
    }
)


def refusals(endpoint: Endpoint) -> tuple[str, ...]:
    """The codes that a route may answer with, in order."""
    codes = {*ALWAYS, *OF_VERBS.get(endpoint.name, "").split()}
    if endpoint.scope is not None:
        codes.update(WITH_KEY)
    if "{queue}" in endpoint.path:
        codes.update(WITH_QUEUE)
    if endpoint.body is not None:
        codes.update(WITH_BODY)
    return tuple(sorted(codes))

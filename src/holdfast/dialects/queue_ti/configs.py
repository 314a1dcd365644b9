"""The configuration of a topic, and what it is for the engine.

What a topic has of its own is kept with its queue as an annotation, what holds for all topics as one of the
engine's defaults; so both are known wherever the queue is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from .requests import Settings, TopicConfig
from .values import grave_of, is_grave

ANNOTATION = "queue-ti"
OF_ALL = "queue-ti-defaults"
KEPT, KEPT_FOR = ["expired", "failed"], "366 days"

Config = dict[str, Any]
Annotations = Mapping[str, Any]
S = TypeVar("S", bound=msgspec.Struct)

DEFAULTS = Settings(
    visibility_timeout_seconds=30, max_retries=3, message_ttl_seconds=86_400, dlq_threshold=3
)


def settings_of(annotations: Annotations) -> Settings:
    """What holds for all topics."""
    return filled(annotation(annotations, OF_ALL, Settings), DEFAULTS)


def own(annotations: Annotations) -> TopicConfig:
    """What a topic has of its own."""
    return annotation(annotations, ANNOTATION, TopicConfig)


def annotation(annotations: Annotations, name: str, kind: type[S]) -> S:
    """An annotation; one that others have written, and that is none of ours, says nothing."""
    try:
        return msgspec.convert(annotations.get(name) or {}, kind)
    except msgspec.ValidationError:
        return kind()


def filled(given: Settings, base: Settings) -> Settings:
    """Settings, with those of a base where nothing is said."""
    said = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
    return msgspec.structs.replace(base, **said)


def retries_of(config: TopicConfig, settings: Settings) -> int:
    """How often a message of a topic may fail."""
    retries = settings.max_retries if config.max_retries is None else config.max_retries
    assert retries is not None
    return retries


def buries(config: TopicConfig, settings: Settings) -> bool:
    """Whether messages of a topic go to its dead-letter topic before they have failed for good."""
    assert settings.dlq_threshold is not None
    # The first nack is the last chance of a message without retries.
    return 0 < settings.dlq_threshold <= max(retries_of(config, settings), 1)


def for_engine(topic: str, config: TopicConfig, settings: Settings) -> Config:
    """A topic's configuration as the engine takes it; null is what nothing is said of."""
    if is_grave(topic):
        return for_grave(settings)
    dies = buries(config, settings)
    lifetime = settings.message_ttl_seconds
    if config.message_ttl_seconds is not None:
        lifetime = config.message_ttl_seconds
    return shared(settings) | {
        "dead_letter": grave_of(topic) if dies else False,
        "max_deliveries": settings.dlq_threshold if dies else max(retries_of(config, settings), 1),
        "ttl": lifetime or None,
        "expire_in_flight": True,
        "max_depth": config.max_depth or None,
        "throughput_limit": config.throughput_limit or None,
        "annotations": {ANNOTATION: said(config)},
    }


def for_grave(settings: Settings) -> Config:
    """The same of a dead-letter topic: whoever nacks its messages lets them fail for good."""
    return shared(settings) | {"dead_letter": False, "max_deliveries": 1, "annotations": {ANNOTATION: {}}}


def shared(settings: Settings) -> Config:
    """What all topics have."""
    return {
        "lease": settings.visibility_timeout_seconds,
        "budget": "failures",
        "lapse_is_failure": False,
        "replaces": "waiting",
        "keep": KEPT,
        "keep_for": KEPT_FOR,
    }


def said(config: TopicConfig) -> Config:
    """What a configuration says, and nothing else."""
    return {name: value for name, value in msgspec.structs.asdict(config).items() if value is not None}


def shown(topic: str, config: TopicConfig) -> Config:
    """The answer about a topic's own configuration."""
    return {"topic": topic, **msgspec.structs.asdict(config)}

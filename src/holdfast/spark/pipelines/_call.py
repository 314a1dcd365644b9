"""Functions that a user names on the command line, as module:function."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame

from ._pipeline import PipelineError

Transform = Callable[[DataFrame], DataFrame]


def found(name: str) -> Transform:
    """The function of that name; modules of the current folder are found too."""
    module_name, _, path = name.partition(":")
    if not module_name or not path:
        raise PipelineError(f"{name}: expected package.module:function")
    function: Any = _imported(module_name)
    for part in path.split("."):
        try:
            function = getattr(function, part)
        except AttributeError:
            raise PipelineError(f"{name}: there is no {part} in {_named(function)}") from None
    if not callable(function):
        raise PipelineError(f"{name}: expected a function, got {type(function).__name__}")
    _refuse_other_arguments(function, name)
    return function  # type: ignore[no-any-return]


def called(function: Transform, frame: DataFrame, name: str) -> DataFrame:
    """What the function makes of a frame."""
    answer: object = function(frame)
    if not isinstance(answer, DataFrame):
        raise PipelineError(f"{name}: expected it to return a DataFrame, got {type(answer).__name__}")
    return answer


def _imported(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise PipelineError(f"module {name} needs {error.name}, which is not installed") from error
        raise PipelineError(f"there is no module {name}, neither in {here} nor installed") from None


def _refuse_other_arguments(function: Transform, name: str) -> None:
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise PipelineError(f"{name}: expected a function of one DataFrame: {error}") from None
    except ValueError:
        return  # written in C: it says by itself what it does not take


def _named(place: object) -> str:
    return str(getattr(place, "__name__", place))

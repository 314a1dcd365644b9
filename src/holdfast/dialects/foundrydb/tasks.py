"""Tasks: what was asked of the agent, and polled for until it is done."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdfast.client import ServiceTask, TaskNotFoundError
from holdfast.server.answering import JsonResponse
from holdfast.server.endpoint import Call

from .errors import UNPROCESSABLE
from .requests import Poll

ACCEPTED = 202


def begun(task: Any) -> Response:
    """The answer that names a task."""
    return JsonResponse({"task_id": str(task)}, ACCEPTED)


async def polled(call: Call[Poll], kind: str) -> ServiceTask:
    """The task that is asked for, of this kind and of the queue of the path."""
    task = await call.service.services.task(call.part("service"), call.queue, call.asked.task_id)
    if task.kind != kind:
        raise TaskNotFoundError(
            "QH868",
            f"task {task.id} does not exist",
            f"There is one of that id, and it is none of {kind}.",
        )
    return task


def answer(task: ServiceTask, result: Any) -> Response:
    """How far a task is; result: what came of it, as the page has it."""
    document: dict[str, Any] = {"task_id": str(task.id), "status": task.status}
    if task.status == "completed":
        return JsonResponse(document | {"result": result})
    if task.status == "failed":
        # Clients raise what is no 2xx, and go on polling for what is.
        return JsonResponse({"error": task.error_message, **document}, UNPROCESSABLE)
    if task.error_message is not None:
        document["error_message"] = task.error_message
    return JsonResponse(document, ACCEPTED)

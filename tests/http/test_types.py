"""The types of requests can be freed. A server that ends frees them all, and crashed now and then.

msgspec lays a type out in one way and frees it in another where text with a pattern, or a list or an object,
may come. The debugging allocator of Python notices that at once, and the ordinary one by chance.
"""

from __future__ import annotations

import os
import subprocess
import sys

FREE = """
import msgspec
from holdfast.dialects import DIALECTS
from holdfast.dialects.topics.watch import Places, Session
from holdfast.server.app import endpoints

every = [*endpoints(), *(endpoint for dialect in DIALECTS.values() for endpoint in dialect.endpoints)]
kinds = {kind for endpoint in every for kind in (endpoint.body, endpoint.query) if kind is not None}
for kind in [Places, Session, *kinds]:
    msgspec.json.Decoder(kind)
print(len(kinds))
"""


def test_every_type_of_a_request_is_freed_without_a_fault() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREE],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert int(done.stdout) > 40

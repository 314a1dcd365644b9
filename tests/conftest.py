"""What every test can use. The fixtures are in tests/fix_*.py, by theme."""

from __future__ import annotations

import signal

from hypothesis import settings

pytest_plugins = [
    "tests.fix_database",
    "tests.fix_folder",
    "tests.fix_http",
    "tests.fix_pgbouncer",
    "tests.fix_proxy",
    "tests.fix_redis",
    "tests.fix_server",
]

# The time of an example is PostgreSQL's, not ours; and what failed once is to fail the same way again.
settings.register_profile("holdfast", deadline=None, print_blob=True)
settings.load_profile("holdfast")

# Started in the background by a shell, this process ignores Ctrl-C, and so would what tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

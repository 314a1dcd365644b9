from tests.engine.test_rows import *
from tests.engine.conftest import *
def test_x(rows):
    rows.send_numbers(1000)
    def ex():
        print("\n".join(r[0] for r in rows.conn.execute(("explain (analyze, buffers) "+NEXT).encode()).fetchall()))
    ex()
    rows.send_numbers(50_000)
    ex()
    rows.conn.execute("vacuum analyze holdfast.message")
    ex()

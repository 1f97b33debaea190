"""Workers do not outlive the process that wanted their data."""

import subprocess
import sys

PROGRAM = """
import time
from momentum_transformer.data.workers import worker_pool
pool = worker_pool(1)
pool.submit(print, "started", flush=True)
pool.submit(time.sleep, 3600)
time.sleep(3600)
"""


def test_workers_end_with_a_parent_that_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        parent.kill()
        assert parent.stdout.read() == ""  # which ends when the worker, too, has let go of it

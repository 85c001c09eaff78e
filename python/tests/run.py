"""Runs all tests of this folder: each module in a process of its own, as many at a time as there are CPUs.

    python run.py

What a module prints is printed when it has ended. The status is 1 if a test fails, or if a process does not live to the
end of its tests. PyTorch has one thread in each process: with more, the processes would wait for each other.
"""

import concurrent.futures
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# These take long and start first, in this order, so that none of them runs alone at the end.
LONG = (
    "test_trl test_models test_main test_trl_audit test_operators test_audit test_head test_audit_many test_torch test_process "
    "test_example test_docs test_cuda"
).split()
# This tests tables of a study, whatever the versions are: it runs beside PyTorch alone.
ONCE = ("test_words",)
# These test what PyTorch's threads do, and have as many as it takes.
THREADS = ("test_head", "test_operators", "test_process", "test_torch")
ENDS = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED|NO TESTS RAN)(?: \((?:.*, )?skipped=(\d+).*\))?", re.MULTILINE)


def run(module):
    """Returns the module, whether all of it has passed, what it printed, and how many tests it ran and skipped."""
    env = dict(os.environ) if module in THREADS else dict(os.environ, OMP_NUM_THREADS="1")
    command = [sys.executable, "-X", "faulthandler", "-m", "unittest", "discover", "-b", "-p", module + ".py"]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as out:  # no pipe, which a process that outlives its test holds
        status = subprocess.call(command, cwd=FOLDER, env=env, stdout=out, stderr=subprocess.STDOUT)
        out.seek(0)
        text = out.read()
    ends = [(int(ran), int(skipped or 0)) for ran, skipped in ENDS.findall(text)]
    if status == 5 and ends and ends[-1][1]:  # before Python 3.12.2, where all tests are skipped
        status = 0
    said = f"== {module}: {time.monotonic() - begin:.0f} s" + (f", exit status {status}" if status else "")
    return module, status == 0 and bool(ends), f"{said}\n{text}", ends[-1] if ends else (0, 0)


def main():
    modules = sorted(path.stem for path in FOLDER.glob("test_*.py"))
    if importlib.util.find_spec("torch") is None:
        modules = [m for m in modules if m not in ONCE]
    modules.sort(key=lambda m: LONG.index(m) if m in LONG else len(LONG))
    begin, ran, skipped, failed = time.monotonic(), 0, 0, []
    cpus = len(os.sched_getaffinity(0))
    pool = concurrent.futures.ThreadPoolExecutor(cpus)
    try:
        for done in concurrent.futures.as_completed([pool.submit(run, module) for module in modules]):
            module, passed, text, counts = done.result()
            print(text, flush=True)
            ran, skipped = ran + counts[0], skipped + counts[1]
            failed += [] if passed else [module]
    finally:
        pool.shutdown(cancel_futures=True)  # where somebody interrupts it
    took = time.monotonic() - begin
    print(f"Ran {ran} tests of {len(modules)} modules on {cpus} CPUs in {took:.0f} s: {skipped} skipped")
    if failed:
        sys.exit("failed: " + ", ".join(sorted(failed)))


if __name__ == "__main__":
    main()

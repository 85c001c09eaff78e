"""Threads, processes, signals and little memory."""

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import platform
import resource
import signal
import threading
import time
import traceback
import unittest
from pathlib import Path

import numpy as np
from support import TestCase, needs_torch, random_batch, run_python, torch

import reweight
from reweight import _generated, _library

X = np.random.default_rng(0).normal(size=(64, 3000)).astype(np.float32)
IDS = np.arange(64)
ARRAYS = random_batch(1)
LARGE = np.random.default_rng(0).normal(size=(64, 1 << 18)).astype(np.float32)


def work(workers=2, array=lambda a: a):
    """Calls that start threads and calls that need scratch memory; returns their bits. array makes the kind of array
    that has the logits."""
    s = reweight.token_stats(array(X), array(IDS), log_sum_sq_probs=True, workers=workers)
    s = [np.asarray(a) for a in s]
    b = reweight.Batch(**ARRAYS)
    b.advantages = reweight.multiply(reweight.grpo(b), reweight.aem(b))
    grad = reweight.loss(b, reweight.actfocus(b, signal="surprisal").weights).grad
    return b"".join(a.tobytes() for a in (*s, b.advantages, grad))


def work_equals(want, times=3):
    return all(work() == want for _ in range(times))


FE_DOWNWARD = {"x86_64": 0x400, "aarch64": 0x800000}


@contextlib.contextmanager
def parallel():
    """Calls whose threads are Python's, and round down; gives the list of how many each call asks for."""
    asked, libm = [], ctypes.CDLL("libm.so.6")
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    @ctypes.CFUNCTYPE(None, task_type, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    def run(task, argument, n, flags):
        def work():
            if libm.fesetround(FE_DOWNWARD[platform.machine()]) == 0:
                task(argument)

        asked.append((n, flags))
        crew = [threading.Thread(target=work) for _ in range(n)]
        for t in crew:
            t.start()
        for t in crew:
            t.join()

    before = _library._parallel
    _library.share_threads(ctypes.cast(run, ctypes.c_void_p).value)
    try:
        yield asked
    finally:
        _library.share_threads(before)


def put_work(queue):
    queue.put(work())


def in_fork(test, seconds=60):
    """Whether a function returns true in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(seconds)
            code = 0 if test() else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def long_call(out, workers):
    """Calls the library for a tenth of a second or more."""
    with _library.using(_library.CPU(_generated.ISAS.index("portable"))):
        reweight.token_stats(LARGE, out=out, workers=workers)


class Rows:
    """A data set whose items are computed by the library."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return reweight.token_stats(torch.from_numpy(X[i : i + 1]), torch.from_numpy(IDS[i : i + 1]), workers=2).logprobs


class Processes(TestCase):
    def test_fork_after_use(self):
        want = work()
        passed = sum(in_fork(lambda: work_equals(want)) for _ in range(100))
        self.assertEqual(passed, 100)
        self.assertEqual(work(), want)

    def test_fork_while_threads_work(self):
        want = work()
        stop = threading.Event()

        def busy():
            while not stop.is_set():
                work()

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            self.assertEqual(sum(in_fork(lambda: work_equals(want, 1)) for _ in range(20)), 20)
        finally:
            stop.set()
            for t in threads:
                t.join()

    def test_multiprocessing(self):
        want = work()
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            with context.Pool(2) as pool:
                results = pool.map_async(work, [1, 2, 3, 4] * 5).get(120)
            self.assertEqual([r == want for r in results], [True] * 20, method)

    @needs_torch
    def test_data_loader(self):
        want = np.concatenate([reweight.token_stats(X[i : i + 1], IDS[i : i + 1]).logprobs for i in range(64)])
        for method in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(
                Rows(), batch_size=4, num_workers=2, multiprocessing_context=method, timeout=120
            )
            got = torch.cat([b.reshape(-1) for b in loader])
            self.assertBits(got, want, method)


class Threads(TestCase):
    @needs_torch
    def test_threads_of_others(self):
        """They take the rows of tensors, and not those of NumPy's arrays."""
        want = work(1)
        with parallel() as asked:
            self.assertEqual([work(n, torch.from_numpy) for n in (1, 2, 3)], [want] * 3)
            self.assertEqual(asked, [(2, 0), (3, 0)])
            of = reweight.token_stats(X, IDS, workers=2).logprobs
            reweight.row_gradient(X, IDS, of, of, workers=2)
            self.assertEqual(len(asked), 2)
            reweight.row_gradient(*map(torch.from_numpy, (X, IDS, of, of)), workers=2)
            self.assertEqual(asked[2:], [(2, 0)])

    @needs_torch
    def test_threads_of_pytorch(self):
        """They serve right after an operation, and those of a fork serve it."""
        import reweight.torch

        if _library._parallel is None:
            self.skipTest("the OpenMP of this PyTorch is not GNU's, or is older than GCC 9's")
        want, x = work(1), torch.ones(1 << 20)

        def serve(times=3):
            for _ in range(times):
                x.add_(1.0)
                if work(2, torch.from_numpy) != want:
                    return False
            return True

        self.assertTrue(serve(20))
        self.assertEqual(sum(in_fork(serve) for _ in range(20)), 20)
        self.assertTrue(in_fork(lambda: in_fork(serve)))
        self.assertTrue(serve())

    @needs_torch
    def test_pytorch_in_a_fork(self):
        """What this package did before leaves PyTorch its threads in the child, and what PyTorch did, too, where the
        threads of the parent can be ended."""
        code = """
import os, signal, sys, threading
import numpy as np, torch
import reweight, reweight.torch
from reweight import _library

torch.set_num_threads(2)
x, ids = torch.randn(64, 5000), torch.zeros(64, dtype=torch.int64)
leaf = x.clone().requires_grad_()
def ours():
    stats = reweight.torch.token_stats(leaf, ids)
    sum(s.sum() for s in stats).backward()
def theirs():
    torch.log_softmax(leaf, -1).sum().backward()
def hidden():
    weight = x[:, :40].clone().requires_grad_()
    reweight.torch.linear_token_stats(x[:, :40], weight, ids)[0].sum().backward()
calls = {"numpy": lambda: reweight.token_stats(x.numpy(), ids.numpy(), workers=2)}
if _library._parallel is not None:
    calls.update(ours=ours, hidden=hidden, theirs=theirs)
def fork():
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        for call in (theirs, ours, hidden):
            call()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
before = len(os.listdir("/proc/self/task"))
calls["numpy"]()
print("more threads", len(os.listdir("/proc/self/task")) - before)
for name, call in calls.items():
    call()
    print(name, fork())
    thread = threading.Thread(target=lambda: (call(), print(name, "in a thread", fork())))
    thread.start()
    thread.join()
"""
        done = run_python(code, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
        self.assertGreaterEqual(len(found), 3)
        self.assertEqual([(what, code) for what, code in found if code != "0"], [])

    def test_16_threads(self):
        want, wrong = work(), []

        def run():
            for _ in range(10):
                if work() != want:
                    wrong.append(threading.get_ident())

        threads = [threading.Thread(target=run) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_other_threads_run_during_a_call(self):
        """A call does not hold the interpreter's lock."""
        out = reweight.TokenStats(lse=np.zeros(64, np.float32))
        times, stop = [], threading.Event()

        def tick():
            while not stop.is_set():
                times.append(time.perf_counter())
                time.sleep(0.0005)

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            begin = time.perf_counter()
            long_call(out, 1)
            end = time.perf_counter()
        finally:
            stop.set()
            thread.join()
        within = [t for t in times if begin < t < end]
        self.assertGreater(len(within), 3, f"of a call of {end - begin:.3f} s")

    def test_no_thread_is_left(self):
        before = len(os.listdir("/proc/self/task"))
        work(8)
        self.assertLessEqual(len(os.listdir("/proc/self/task")), before)


class Limits(TestCase):
    def test_little_memory(self):
        """Where threads cannot be started, the caller's thread does the work."""
        want = work()

        def limited():
            # What is mapped now, and room for what Python itself needs: not for the stack of a thread.
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            used = pages * resource.getpagesize()
            arrays = [np.empty(64, np.float32) for _ in range(3)]
            for room in (64 << 10, 1 << 20, 8 << 20):
                resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
                reweight.token_stats(X, IDS, workers=64, out=reweight.TokenStats(*arrays))
                if b"".join(a.tobytes() for a in arrays) != want[: 3 * 64 * 4]:
                    return False
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            return True

        self.assertTrue(in_fork(limited))

    def test_no_processes(self):
        """The same where the user may not have more processes; root may always."""
        want = work()

        def limited():
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            return work(workers=8) == want

        self.assertTrue(in_fork(limited))

    def test_from_an_empty_environment(self):
        code = "import reweight; print(reweight.available_isas()[0])"
        done = run_python(code, env={"HOME": "/nonexistent"}, cwd="/")
        self.assertEqual((done.returncode, done.stdout), (0, "portable\n"), done.stderr)


class Signals(TestCase):
    def test_keyboard_interrupt(self):
        """It arrives when the call is done, and the process goes on."""
        out = reweight.TokenStats(lse=np.zeros(64, np.float32))
        for workers in (1, 4):
            begin = time.perf_counter()
            long_call(out, workers)
            duration = time.perf_counter() - begin
            want = out.lse.copy()
            for _ in range(20):
                out.lse[:] = 0
                self.interrupt(duration / 4, lambda: long_call(out, workers))
                if out.lse.any():  # otherwise the signal came before the call, on a busy machine
                    break
            self.assertBits(out.lse, want)
            out.lse[:] = 0
            long_call(out, workers)
            self.assertBits(out.lse, want)

    def interrupt(self, delay, call):
        """Makes a call, and wants a SIGINT to interrupt it."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            with self.assertRaises(KeyboardInterrupt):
                timer.start()
                call()
                time.sleep(10)  # the signal may come late
        finally:
            timer.join()
            signal.signal(signal.SIGINT, before)

    def test_calls_in_signal_handlers(self):
        """A handler that runs in the middle of a call's preparation may call as well."""
        want, wrong, lengths = work(), [], itertools.count(1 << 16, 64)

        def handler(*_):
            longer = np.ones(next(lengths), np.float32)  # needs more scratch memory than any call before
            ones = longer.astype(np.uint8)
            b = reweight.Batch(ones, old_logprobs=longer)
            reweight.actfocus(b, signal="surprisal")
            if work(1) != want:
                wrong.append("in the handler")
            if time.monotonic() < end:  # not in intervals: where the machine is busy, handlers would interrupt handlers
                signal.setitimer(signal.ITIMER_REAL, 0.002)

        before = signal.signal(signal.SIGALRM, handler)
        end = time.monotonic() + 1
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        try:
            while time.monotonic() < end:
                if work(1) != want:
                    wrong.append("outside")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()

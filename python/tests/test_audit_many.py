"""An audit of many files on the workers of Dask and Ray: the bits of one process, whatever the split."""

import importlib.util
import json
import os
import unittest
from unittest import mock

from support import program, run_python

import reweight
from reweight import distributed
from reweight._program import find
from reweight.audit import _command

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "tokenizers")):
    raise unittest.SkipTest("PyTorch or transformers is not installed")

import test_audit
import torch

SAID = """
import json, sys
from unittest import mock
from reweight import distributed

def said(call, folder, splits):
    found = {}
    for name, (files, most) in splits.items():
        with mock.patch.object(distributed, "_MOST_TASKS", most):
            found[name] = call(files, flags=["--model", folder + "/model", "--device", "cpu"]).as_json()
    try:
        call(splits["one"][0], flags=["--model", folder + "/model", "--device", "cpu", "--schemes", "rlsd"])
    except Exception as error:
        found["error"] = [type(error).__name__, str(error)]
    return found

def main(folder, splits):
"""
DASK = SAID + """
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=True, host="127.0.0.1", dashboard_address=None) as cluster:
        with Client(cluster) as client:
            print(json.dumps(said(lambda *a, **k: distributed.dask_audit(client, *a, **k), folder, splits)))

if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
"""
RAY = SAID + """
    import ray
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder + "/r")
    found = said(distributed.ray_audit, folder, splits)
    found["resources"] = distributed.ray_audit(splits["one"][0], flags=["--model", folder + "/model", "--prompts", "3"], num_cpus=2).counted
    ray.shutdown()
    print(json.dumps(found))

if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
"""


class Many(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if find() is None:  # this is a clone, and not the wheel
            environ = mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"])
            environ.start()
            cls.addClassCleanup(environ.stop)
        test_audit.Command.setUpClass()
        cls.addClassCleanup(test_audit.Command.tearDownClass)
        cls.path = test_audit.Command.path
        lines = (cls.path / "rollouts.jsonl").read_text().splitlines(True)
        cls.splits = {"one": ([str(cls.path / "rollouts.jsonl")], 1000)}
        for name, files, most in (("anywhere", 5, 3), ("answers alone", len(lines), 1000)):
            cuts = [len(lines) * i // files for i in range(files + 1)]
            names = []
            for i, (first, end) in enumerate(zip(cuts, cuts[1:])):
                names.append(str(cls.path / f"{files}-{i:03}.jsonl"))
                (cls.path / names[-1]).write_text("".join(lines[first:end]))
            cls.splits[name] = (names, most)
        cls.flags = ["--model", str(cls.path / "model"), "--device", "cpu"]
        threads = torch.get_num_threads()  # as many as the workers have: the order of sums depends on it
        torch.set_num_threads(1)
        cls.addClassCleanup(torch.set_num_threads, threads)

    def check(self, code):
        run = run_python(code, str(self.path), json.dumps(self.splits), timeout=900, env={"OMP_NUM_THREADS": "1"})
        self.assertEqual(run.returncode, 0, run.stderr)
        said = json.loads(run.stdout.splitlines()[-1])
        options = _command.options_of(self.splits["one"][0], self.flags)
        want = _command.measured(sum(_command.parts_of(options, 1), []), options).as_json()
        self.assertEqual(json.loads(want)["prompts"], 12)
        for name in self.splits:
            self.assertEqual(json.loads(said[name]), json.loads(want), name)
        kind, text = said["error"]
        self.assertEqual(kind, "InputError")
        self.assertIn("schemes has one that the audit cannot compute: teacher_logprobs", text)
        return said

    @unittest.skipIf(importlib.util.find_spec("distributed") is None, "Dask's distributed is not installed")
    def test_dask(self):
        """Two processes with two threads each, which share a model."""
        self.check(DASK)

    @unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
    def test_ray(self):
        """Two processes."""
        self.assertEqual(self.check(RAY)["resources"], 3)

    def test_errors(self):
        """Before any worker is asked."""
        files = self.splits["one"][0]
        for files, flags, problem in (
            ([], self.flags, "files has no elements, want at least one"),
            (files, [], "want flags of python -m reweight audit: the following arguments are required: --model"),
            (files, [*self.flags, "--nothing"], "want flags of python -m reweight audit: unrecognized arguments: --nothing"),
            (files, [*self.flags, "--out", "x"], "flags has --out, and the audit is returned"),
            (files, [*self.flags, "--temperature", "0"], "temperature is 0"),
            (files, ["--model", str(self.path / "none")], "which transformers does not load"),
            ([str(self.path / "missing.jsonl")], self.flags, "missing.jsonl: no such file or directory"),
        ):
            for call in (lambda *a, **k: distributed.dask_audit(None, *a, **k), distributed.ray_audit):
                with self.subTest(problem), self.assertRaises(reweight.InputError) as caught:
                    call(files, flags=flags)
                self.assertIn(problem, str(caught.exception))


if __name__ == "__main__":
    unittest.main()

"""reweight.adapters.tinker with Tinker's datums and tinker-cookbook as they are installed: their own prepare_minibatch, and
the advantages against the papers' formulas in float64."""

import asyncio
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
import pathlib
import random
import sys
import tempfile
import unittest
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

if importlib.util.find_spec("tinker") is None or importlib.util.find_spec("tinker_cookbook") is None:
    raise unittest.SkipTest("tinker and tinker-cookbook are not installed")

import numpy as np
import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl import data_processing, train, types

from reweight import InputError
from reweight.adapters import Credit, HookError
from reweight.adapters import tinker as adapter
from test_adapters_checkouts import Finder, Missing

OPEN, CLOSE = 3, 4
CREDIT = Credit(alpha=0.1, beta=0.5, guard=0.0, tags=([OPEN], [CLOSE]), tags_as="reasoning", entropy="surprisal")


def trajectory(random, turns, words, broken=False, rewards=(0.0,) * 3, masked=None):
    """Some turns of words and an answer. broken: the last turn does not go on from the one before it, so that it is a datum
    of its own. masked: a turn that tinker-cookbook leaves out of the loss."""
    said, found = [10, 11, 12], []
    for turn in range(turns):
        if broken and turn == turns - 1:
            said = [13, 14]
        tokens = [random.randrange(5, 30) for _ in range(words)] + [OPEN, *(random.randrange(5, 30) for _ in range(3)), CLOSE]
        action = TokensWithLogprobs(tokens=tokens, maybe_logprobs=[-random.expovariate(1.0) for _ in tokens])
        input = tinker.ModelInput.from_ints(list(said))
        found.append(types.Transition(ob=input, ac=action, reward=rewards[turn], episode_done=turn == turns - 1))
        if turn == masked:
            found[-1].metrics[types.PARSE_ERROR_MASKED_METRIC_KEY] = 1.0
        said = said + tokens + [2, 20, 21, 2]
    return types.Trajectory(transitions=found, final_ob=tinker.ModelInput.from_ints(list(said)))


def groups(broken=False):
    r = random.Random(1)
    made = [[trajectory(r, 1 + i % 3, 5 + i, broken and i % 3 > 0) for i in range(4)] for _ in range(2)]
    return [types.TrajectoryGroup(trajectories_G=x, final_rewards_G=[0.0, 1.0, 1.0, 0.0], metrics_G=[{}] * 4) for x in made]


def prepare(found, penalty=0.0, reference=None):
    """The datums and the metrics of tinker-cookbook, without what it prints."""
    builders = [SimpleNamespace(logging_tags=lambda: [])] * len(found)
    decode = SimpleNamespace(decode=lambda ids, **_: " ".join(map(str, ids)))
    with contextlib.redirect_stdout(io.StringIO()):
        return asyncio.run(train.prepare_minibatch(builders, found, decode, reference, penalty, 0.0))


def of(datums, name):
    return [datum.loss_fn_inputs[name].to_numpy().copy() for datum in datums]


def multiplied(advantages, masks, ids, logprobs, groups):
    """ActFocus and AEM of CREDIT, from the papers, in float64: each datum's advantages times its weights and factors."""
    roles, spans = [], []
    for at, (mask, row) in enumerate(zip(masks, ids)):
        role, inside = np.zeros(len(row), int), False
        for t in range(len(row)):
            if not mask[t]:
                inside = False
                continue
            inside = inside and row[t] != CLOSE
            role[t] = 2 if inside else 1
            inside = inside or row[t] == OPEN
        edges = np.flatnonzero(np.diff(np.concatenate([[0], (mask != 0).astype(int), [0]]))).reshape(-1, 2)
        spans += [(at, groups[at], first, end) for first, end in edges]
        roles.append(role)
    energies = np.concatenate([-l[r == 2] for l, r in zip(logprobs, roles)]).astype(float)
    mu, sigma = energies.mean(), np.sqrt(energies.var() + CREDIT.eps)
    weights = [np.where(r == 2, 1 + CREDIT.beta / (1 + np.exp(-(-l.astype(float) - mu) / sigma)), np.where(r == 1, CREDIT.alpha, 0.0))
               for l, r in zip(logprobs, roles)]  # fmt: skip
    for group in set(groups):
        mine = [(at, first, end) for at, g, first, end in spans if g == group]
        h = np.array([-logprobs[at][first:end].astype(float).mean() for at, first, end in mine])
        factors = np.exp(-CREDIT.lambda_ * (h - h.min()) / (h.max() - h.min()))
        for (at, first, end), factor in zip(mine, factors / factors.mean()):
            weights[at][first:end] *= factor
    return [a * w for a, w in zip(advantages, weights)]


@contextlib.contextmanager
def installed(credit=CREDIT):
    with contextlib.ExitStack() as stack:
        hooks = [(train, "prepare_minibatch"), (train, "assemble_training_data")]
        hooks += [(tinker.TrainingClient, name) for name in ("forward_backward", "forward_backward_custom")]
        for owner, name in hooks:
            stack.enter_context(mock.patch.object(owner, name, getattr(owner, name)))
        stack.enter_context(mock.patch("atexit.register"))
        adapter.install(credit)
        yield


def art(folder):
    """The module of ART's tinker_native that makes datums, with nothing in the place of what it takes from elsewhere, which
    making a datum does not need."""
    made = {name: ModuleType(name) for name in ("art", "art.trajectories", "art.trajectories._selection", "art.types")}
    made.update({name: ModuleType(name) for name in ("openai", "openai.types", "openai.types.chat", "openai.types.chat.chat_completion")})
    for module in made.values():
        module.__getattr__ = lambda name: mock.MagicMock() if name[0] != "_" or name == "_FirstOccurrenceTrie" else None
    path = Path(folder, "art", "tinker_native", "data.py")
    spec = importlib.util.spec_from_file_location("art.tinker_native.data", path)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, made):
        spec.loader.exec_module(module)
    return module


def rllm(folder):
    """The modules of rLLM that make datums of trajectories, with nothing in the place of what they import and is not used
    there."""
    real = ("trainer.tinker.transform", "engine.rollout.tinker_engine", "engine.rollout.types", "types")
    first, last = Finder(Path(folder), "rllm", real), Missing(Path(folder), "", ())
    with mock.patch.dict(sys.modules), mock.patch.object(sys, "meta_path", [first, *sys.meta_path, last]):
        return importlib.import_module("rllm.trainer.tinker.transform"), importlib.import_module("rllm.types")


class Cookbook(unittest.TestCase):
    worst = 0.0

    @classmethod
    def tearDownClass(cls):
        sys.stderr.write(f"\ntinker-cookbook: advantages within {cls.worst:.1e}\n")

    def assertCredited(self, before, after, group_of):
        want = multiplied(of(before, "advantages"), of(before, "mask"), of(before, "target_tokens"), of(before, "logprobs"), group_of)
        got, want = np.concatenate(of(after, "advantages")), np.concatenate(want)
        off = np.abs(got - want).max() / np.abs(want).max()
        type(self).worst = max(self.worst, off)
        self.assertLess(off, 1e-6)
        for name in ("mask", "target_tokens", "logprobs"):
            for x, y in zip(of(before, name), of(after, name)):
                np.testing.assert_array_equal(x, y)

    def test_prepared(self):
        """The datums of prepare_minibatch, and the scalars in its metrics; trajectories of one datum and of several."""
        for broken, count in (False, 8), (True, 12):
            before, plain, *_ = prepare(groups(broken))
            self.assertEqual(len(before), count)
            metadata = data_processing.assemble_training_data(groups(broken), data_processing.compute_advantages(groups(broken)))[1]
            with installed(), contextlib.redirect_stderr(io.StringIO()) as said:
                after, metrics, *_ = prepare(groups(broken))
                with mock.patch.object(adapter, "token_advantages", wraps=adapter.token_advantages) as called:
                    again, *_ = prepare(groups(broken))
                self.assertEqual(called.call_count, 1)  # and not for the groups that are printed
            self.assertEqual(said.getvalue().count("reweight: in tinker-cookbook"), 1, said.getvalue())
            self.assertIn("sums of the loss (token_sum): ActFocus by surprisal", said.getvalue())
            self.assertCredited(before, after, [m["group_idx"] for m in metadata])
            self.assertCredited(before, again, [m["group_idx"] for m in metadata])
            self.assertEqual({k: v for k, v in metrics.items() if not k.startswith("credit/")}, plain)
            self.assertGreater(metrics["credit/action_weight"], metrics["credit/action_share"])
            self.assertLess(metrics["credit/grad_scale"], 1)  # sums: nothing makes up for the weights below 1
            for x, y in zip(of(prepare(groups(broken))[0], "advantages"), of(before, "advantages")):
                np.testing.assert_array_equal(x, y)  # nothing is installed any more

    def test_turns(self):
        """The rewards of transitions are those of turns: the advantages of returns of turns, against float64, for
        trajectories of one datum and of several, with transitions that the loss lacks."""
        for broken in False, True:
            r, g = random.Random(1), np.random.default_rng(1)
            masked = [None, 0, 1, 2, 0]
            given = g.normal(size=(2, 5, 3)).round(2)
            outcomes = g.normal(size=(2, 5)).round(2)
            made = [[trajectory(r, 3 - i % 2, 5 + i, broken, row, masked[i]) for i, row in enumerate(rows)] for rows in given.tolist()]
            found = [types.TrajectoryGroup(trajectories_G=x, final_rewards_G=o, metrics_G=[{}] * 5) for x, o in zip(made, outcomes.tolist())]
            metadata = data_processing.assemble_training_data(found, data_processing.compute_advantages(found))[1]
            with installed(Credit("turn_returns", entropy="surprisal")), contextlib.redirect_stderr(io.StringIO()):
                datums, metrics, *_ = prepare(found)
            self.assertEqual(metrics["credit/mixed_groups"], 1)
            runs = {}
            for m, advantages, mask in zip(metadata, of(datums, "advantages"), of(datums, "mask")):
                for first, end in np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]]))).reshape(-1, 2):
                    self.assertEqual(len(set(advantages[first:end].tolist())), 1)
                    runs.setdefault((m["group_idx"], m["traj_idx"]), []).append(advantages[first])
            for p, (rows, ends) in enumerate(zip(given, outcomes)):
                G = []
                for q, (row, end) in enumerate(zip(rows, ends)):
                    row, end = row[: 3 - q % 2].tolist(), end
                    if masked[q] == 0:
                        end += row.pop(0)
                    elif masked[q] is not None and masked[q] < len(row):
                        row[masked[q] - 1] += row.pop(masked[q])
                    row[-1] += end
                    G.append(np.cumsum(row[::-1])[::-1])
                for q, own in enumerate(G):
                    others = [x for o, x in enumerate(G) if o != q]
                    want = [x - np.mean([o[min(k, len(o) - 1)] for o in others]) for k, x in enumerate(own)]
                    np.testing.assert_allclose(runs[p, q], want, rtol=1e-5, atol=1e-6)

    def test_penalty(self):
        """tinker-cookbook's penalty is added to the advantages that have the credit, and is not weighted."""

        async def incorporate(data, *rest):
            for datum in data:
                values = datum.loss_fn_inputs
                values["advantages"] = tinker.TensorData.from_numpy(values["advantages"].to_numpy() + np.float32(100))
            return {}, train.TokenUsage()

        with installed(), contextlib.redirect_stderr(io.StringIO()):
            after, *_ = prepare(groups())
            with mock.patch.object(train, "incorporate_kl_penalty", incorporate):
                penalised, *_ = prepare(groups(), 0.1, object())
        for x, y in zip(of(after, "advantages"), of(penalised, "advantages")):
            np.testing.assert_array_equal(x + np.float32(100), y)

    def test_never_called(self):
        """A loop that goes past prepare_minibatch ends before anything is sent."""
        sent = []
        client = tinker.TrainingClient.__new__(tinker.TrainingClient)
        plain, *_ = prepare(groups())
        bare = [tinker.Datum(model_input=d.model_input, loss_fn_inputs={"target_tokens": d.loss_fn_inputs["target_tokens"]}) for d in plain]
        send = lambda self, data, loss_fn, *rest: sent.append(loss_fn)
        with mock.patch.multiple(tinker.TrainingClient, forward_backward=send, forward_backward_custom=send), installed():
            with self.assertRaisesRegex(HookError, "^Tinker is about to learn without the credit: prepare_minibatch of .* was never called"):
                client.forward_backward(plain, "ppo")
            for loss in "dro", "gspo", "stable_reinforce":
                with self.assertRaisesRegex(ValueError, f"^loss_fn is '{loss}', with which a weight per token was not tested, want one of"):
                    client.forward_backward(plain, loss)
            with self.assertRaisesRegex(ValueError, "with which a weight per token was not tested"):
                client.forward_backward_custom(plain, lambda data, logprobs: None)
            self.assertEqual(sent, [])
            client.forward_backward(bare, "cross_entropy")  # what has no advantages
            with contextlib.redirect_stderr(io.StringIO()):
                asyncio.run(train_after_prepare(client))
            self.assertEqual(sent, ["cross_entropy", "importance_sampling"])
        with installed(), mock.patch.object(train, "assemble_training_data", data_processing.assemble_training_data):
            with self.assertRaisesRegex(HookError, "^prepare_minibatch has made datums without assemble_training_data"):
                prepare(groups())


async def train_after_prepare(client):
    builders = [SimpleNamespace(logging_tags=lambda: [])] * 2
    with contextlib.redirect_stdout(io.StringIO()):
        datums, *_ = await train.prepare_minibatch(builders, groups(), SimpleNamespace(decode=lambda ids, **_: ""), None, 0.0, 0.0)
    client.forward_backward(datums, "importance_sampling")


class Datums(unittest.TestCase):
    def datums(self):
        return prepare(groups())[0]

    def test_call(self):
        """credit_datums gives what install gives."""
        datums, rewards = self.datums(), [0.0, 1.0, 1.0, 0.0] * 2
        log = adapter.credit_datums(datums, ["a"] * 4 + ["b"] * 4, rewards, CREDIT)
        with installed(), contextlib.redirect_stderr(io.StringIO()):
            want, metrics, *_ = prepare(groups())
        for x, y in zip(of(datums, "advantages"), of(want, "advantages")):
            np.testing.assert_array_equal(x, y)
        self.assertEqual(log, {name: metrics[name] for name in log})
        self.assertEqual(adapter.credit_datums([], [], [], CREDIT), {})

    @unittest.skipUnless(os.environ.get("REWEIGHT_ART"), "REWEIGHT_ART is not the folder of openpipe-art")
    def test_art(self):
        """The datums of ART's tinker_native, made by its own functions of tokens, log-probabilities and rewards."""
        data, r, datums, rewards = art(os.environ["REWEIGHT_ART"]), random.Random(2), [], [0.0, 1.0, 1.0, 0.0]
        for advantage in data.compute_advantages(rewards) * 2:
            tokens = [r.randrange(5, 30) for _ in range(r.randrange(4, 9))] + [OPEN, r.randrange(5, 30), r.randrange(5, 30), CLOSE]
            datums.append(data.build_datum([10, 11, 12], tokens, [-r.expovariate(1.0) for _ in tokens], advantage))
        given = [of(datums, name) for name in ("advantages", "mask", "target_tokens", "logprobs")]
        of_datums = [0] * 4 + [1] * 4
        adapter.credit_datums(datums, of_datums, rewards * 2, CREDIT)
        for found, want in zip(of(datums, "advantages"), multiplied(*given, of_datums)):
            np.testing.assert_allclose(found, want, rtol=2e-6, atol=1e-7)

    @unittest.skipUnless(os.environ.get("REWEIGHT_RLLM"), "REWEIGHT_RLLM is not the folder of rLLM")
    def test_rllm(self):
        """The datums of rLLM's tinker backend, made by its own function of steps: trajectories of one datum and of two."""
        transform, kinds = rllm(os.environ["REWEIGHT_RLLM"])
        r, datums, of_datums, rewards, names = random.Random(2), [], [], [], []
        for at, reward in enumerate([0.0, 1.0, 1.0, 0.0] * 2):
            steps, said = [], [10, 11, 12]
            for turn in range(2):
                tokens = [r.randrange(5, 30) for _ in range(r.randrange(4, 9))] + [OPEN, r.randrange(5, 30), r.randrange(5, 30), CLOSE]
                logprobs = [-r.expovariate(1.0) for _ in tokens]
                steps.append(kinds.Step(prompt_ids=said, response_ids=tokens, logprobs=logprobs, advantage=reward - 0.5))
                said = [13, 14] if at % 2 else [*said, *tokens, 2, 20]
            made = transform.trajectory_to_datums(kinds.Trajectory(steps=steps))
            self.assertEqual(len(made), 1 + at % 2)
            datums += made
            of_datums, rewards, names = of_datums + [at // 4] * len(made), rewards + [reward] * len(made), names + [at] * len(made)
        given = [of(datums, name) for name in ("advantages", "mask", "target_tokens", "logprobs")]
        adapter.credit_datums(datums, of_datums, rewards, CREDIT, trajectories=names)
        for found, want in zip(of(datums, "advantages"), multiplied(*given, of_datums)):
            np.testing.assert_allclose(found, want, rtol=2e-6, atol=1e-7)

    def test_schemes(self):
        """Advantages of a scheme take the place of the datums'; a trajectory of several datums counts once."""
        whole, parts = prepare(groups())[0], prepare(groups(broken=True))[0]
        ids = data_processing.assemble_training_data(groups(True), data_processing.compute_advantages(groups(True)))[1]
        credit, rewards = Credit("rloo"), [0.0, 1.0, 1.0, 0.0]
        adapter.credit_datums(whole, [0] * 4 + [1] * 4, rewards * 2, credit)
        names = [(m["group_idx"], m["traj_idx"]) for m in ids]
        adapter.credit_datums(parts, [g for g, _ in names], [rewards[t] for _, t in names], credit, trajectories=names)
        for datum, (_, t) in [*zip(whole, [(0, i % 4) for i in range(8)]), *zip(parts, names)]:
            [advantages], [mask] = of([datum], "advantages"), of([datum], "mask")
            np.testing.assert_allclose(advantages, mask * (rewards[t] - (2 - rewards[t]) / 3), rtol=1e-6)

    def test_files(self):
        """A file of a batch has whole sequences, the first token too, which is no target, whatever the scheme reads."""
        for credit in Credit("rloo"), CREDIT:
            datums = self.datums()
            with tempfile.TemporaryDirectory() as folder:
                adapter.credit_datums(datums, [0] * 4 + [1] * 4, [0.0, 1.0, 1.0, 0.0] * 2, dataclasses.replace(credit, save_every=1, dir=folder))
                [file] = pathlib.Path(folder).iterdir()
                found = [json.loads(line)["token_ids"] for line in file.read_text().splitlines()]
            self.assertEqual(len(found), 8)
            for ids, datum, targets in zip(found, datums, of(datums, "target_tokens")):
                self.assertEqual(ids, [*datum.model_input.to_ints()[:1], *targets.astype(int).tolist()][: len(ids)])
                self.assertEqual(ids[:3], [10, 11, 12])

    def test_errors(self):
        """What is wrong is said before anything is changed."""
        rewards, groups_ = [0.0, 1.0, 1.0, 0.0] * 2, [0] * 4 + [1] * 4
        turns = Credit("turn_returns", tags=None, entropy="surprisal")

        def lacks(name):
            datums = self.datums()
            del datums[3].loss_fn_inputs[name]
            return datums

        def shaped(name, make):
            datums = self.datums()
            values = datums[5].loss_fn_inputs
            values[name] = tinker.TensorData.from_numpy(make(values[name].to_numpy()))
            return datums

        for message, datums, call in (
            (r"^groups has 7 elements, want 8, one per datum", None, dict(groups=groups_[1:])),
            (r"^rewards has 9 elements, want 8, one per datum", None, dict(rewards=[*rewards, 1.0])),
            (r"^trajectories has 2 elements, want 8", None, dict(trajectories=[1, 2])),
            (r"^groups\[4\] is 1, but 0 at another datum of its trajectory", None, dict(trajectories=[0] * 8, rewards=[0.0] * 8)),
            (r"^rewards\[1\] is 1\.0, but 0\.0 at another datum", None, dict(trajectories=[0] * 8, groups=[0] * 8)),
            (r"^span_rewards has 7 elements, want 8, one per datum", None, dict(span_rewards=[[1.0]] * 7, credit=turns)),
            (r"^span_rewards\[1\] is \[2\.0\], but \[1\.0\] at another datum of its trajectory", None,
             dict(trajectories=[0] * 8, groups=[0] * 8, rewards=[0.0] * 8, span_rewards=[[1.0], np.array([2.0])] * 4, credit=turns)),
            (r"^span_rewards\[0\] has 2 numbers, want 1, one for each turn", None, dict(span_rewards=[[1.0, 2.0]] * 8, credit=turns)),
            (r"^span_rewards\[0\] is a float, want a list of numbers", None, dict(span_rewards=[1.0] * 8, credit=turns)),
            (r"^span_rewards is None, want 8, the rewards of the turns", None, dict(credit=turns)),
            (r'^datums\[3\] has no loss_fn_inputs\["mask"\]: 1 at the sampled tokens', lacks("mask"), {}),
            (r'^datums\[3\] has no loss_fn_inputs\["advantages"\]$', lacks("advantages"), {}),
            (r'^datums\[3\] has no loss_fn_inputs\["logprobs"\]$', lacks("logprobs"), {}),
            (r'^datums\[5\] has loss_fn_inputs\["logprobs"\] of shape', shaped("logprobs", lambda x: x[1:]), {}),
            (r'^datums\[5\] has loss_fn_inputs\["target_tokens"\] of shape \(\d+, 2\)', shaped("target_tokens", lambda x: np.stack([x, x], 1)), {}),
            (r"entropy is \"exact\", but Tinker keeps no", None, dict(credit=Credit())),
            (r"reads ref_logprobs, which the datums of Tinker do not have", None, dict(credit=Credit("actfocus", beta=0.5, signal="log_ratio"))),
            (r"^tokenizer is None", None, dict(credit=Credit("actfocus"))),
        ):
            datums = datums or self.datums()
            before = [datum.loss_fn_inputs.get("advantages") for datum in datums]
            with self.subTest(message), self.assertRaisesRegex(InputError, message):
                adapter.credit_datums(datums, **{"groups": groups_, "rewards": rewards, "credit": CREDIT, **call})
            self.assertTrue(all(datum.loss_fn_inputs.get("advantages") is x for datum, x in zip(datums, before)))

    def test_recipe(self):
        """examples/tinker, with a service that answers by chance."""
        spec = importlib.util.spec_from_file_location("recipe", Path(__file__).parents[2] / "examples/tinker/train.py")
        recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recipe)
        r, sent = random.Random(2), []
        future = lambda result: SimpleNamespace(result=lambda: result)
        words = ["<answer>", "</answer>", *map(str, range(10)), "so", "think", " "]

        class Tokenizer:
            eos_token_id = 14

            def apply_chat_template(self, messages, **_):
                return messages[0]["content"]

            def encode(self, text, **_):
                self.want = int(np.prod([int(x) for x in text.partition("?")[0].split(" * ")]))
                return [12, 13, 14]

            def decode(self, ids, **_):
                return "".join(words[i] for i in ids)

            def convert_ids_to_tokens(self, ids):
                return [words[i] for i in ids]

        tokenizer = Tokenizer()

        def sample(prompt, num_samples, sampling_params):
            self.assertEqual(sampling_params.stop, [14])
            right = [2 + int(digit) for digit in str(tokenizer.want)]
            answers = [[12, 13, 0, *(right if r.random() < 0.5 else [2, 3]), 1, 14] for _ in range(num_samples)]
            made = [SimpleNamespace(tokens=x, logprobs=[-r.random() for _ in x]) for x in answers]
            return future(SimpleNamespace(sequences=made))

        training = SimpleNamespace(
            get_tokenizer=lambda: tokenizer, save_weights_and_get_sampling_client=lambda: future(SimpleNamespace(sample=sample)),
            forward_backward=lambda datums, loss_fn: sent.append(datums) or future(None), optim_step=lambda how: future(None),
        )  # fmt: skip
        service = SimpleNamespace(create_lora_training_client=lambda base_model: future(training))
        with mock.patch.object(tinker, "ServiceClient", lambda: service), contextlib.redirect_stdout(io.StringIO()) as said:
            recipe.main(2, 3, 4)
        self.assertEqual(len(said.getvalue().splitlines()), 2)
        self.assertRegex(said.getvalue(), r"^0 reward 0\.\d+, answers have \d+\.\d% of the weight\n1 ")
        self.assertEqual([len(datums) for datums in sent], [12, 12])
        for datum in sent[0] + sent[1]:
            self.assertEqual(set(datum.loss_fn_inputs), {"target_tokens", "logprobs", "advantages"})
            [ids], [advantages] = of([datum], "target_tokens"), of([datum], "advantages")
            inside = np.cumsum(ids == 0) - np.cumsum(ids == 1) - (ids == 0) > 0
            answer = np.arange(len(ids)) >= 2
            weights = np.where(inside | np.isin(ids, (0, 1)) & (recipe.CREDIT.tags_as == "action"), 1.0, 0.3) * answer
            np.testing.assert_allclose(advantages, weights * advantages[np.flatnonzero(inside)[0]], rtol=1e-6)
        self.assertTrue(any(np.any(of([datum], "advantages")[0]) for datum in sent[0]))


if __name__ == "__main__":
    unittest.main()

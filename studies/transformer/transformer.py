"""Trains a small transformer on Sudoku 4x4 by TRL's GRPOTrainer, with uniform weights and with ActFocus, in four cells of
the map: the study of plan.md.

    $(python/environment newest)/bin/python studies/transformer/transformer.py studies/transformer/runs.csv

The package `reweight` must be importable. The runs that the table has are not made again. Each takes one thread;
--workers says how many are made at a time. starts.csv, beside the table, has the D of the warm starts.
"""

import argparse
import concurrent.futures
import csv
import math
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # TRL calls rollout_func experimental
os.environ["HF_HUB_OFFLINE"] = "1"

CORNERS = [(fluent, errors) for fluent in (0, 36) for errors in (0, 1)]
SCHEMES = "uniform", "actfocus"
RATES = 5e-4, 1e-3, 2e-3
CHOOSING, COMPARING = (101, 102), tuple(range(1, 9))
STARTS, DEMONSTRATIONS = 2, {0: 6400, 36: 12800}
ITERATIONS, GROUPS, GROUP_SIZE, MINIBATCHES = 20, 8, 8, 4
MISTAKES = 0.35  # share of the demonstrator's turns with one
BETA = 0.001  # above 0, so that TRL has a reference, and ActFocus the reference's energies
COLUMNS = "fluent", "errors", "scheme", "rate", "seed", "success", "malformed", "seconds", "curve"

FILLERS = [f"w{i}" for i in range(36)]
WORDS = ["<pad>", "<end>", "<agent>", "<answer>", "</answer>", *"1234", "row", "column", "box", "not", *FILLERS]
TOKEN = {word: number for number, word in enumerate(WORDS)}
AGENT, OPEN, CLOSE = TOKEN["<agent>"], TOKEN["<answer>"], TOKEN["</answer>"]
DIGITS = [TOKEN[digit] for digit in "1234"]


class Sudoku:
    """The game of studies/learn: in each turn the player fills a cell that has one candidate left; a wrong digit ends it."""

    UNITS = [[[4 * (c // 4) + i for i in range(4)], [4 * i + c % 4 for i in range(4)],
              [c // 8 * 8 + c % 4 // 2 * 2 + i // 2 * 4 + i % 2 for i in range(4)]] for c in range(16)]  # fmt: skip
    PEERS = [set().union(*units) for units in UNITS]

    def __init__(self, puzzle):  # a number or a text
        chance = random.Random(puzzle)
        empty = 6 + chance.randrange(2)
        self.turns, self.done, self.success = empty + 2, False, False
        while not self.dig(chance, empty):
            pass

    def dig(self, chance, empty):
        """Draws a full board and empties cells of it that have one candidate then; says whether it found so many."""
        self.board = [0] * 16
        for cell in range(16):
            left = self.candidates(cell)
            if not left:
                return False
            self.board[cell] = chance.choice(left)
        for cell in chance.sample(range(16), 16):
            digit, self.board[cell] = self.board[cell], 0
            if len(self.candidates(cell)) > 1:
                self.board[cell] = digit
            if self.board.count(0) == empty:
                return True
        return False

    def candidates(self, cell):
        return sorted({1, 2, 3, 4} - {self.board[peer] for peer in self.PEERS[cell]})

    def cell(self):
        return next(cell for cell in range(16) if not self.board[cell] and len(self.candidates(cell)) == 1)

    def best(self):
        return self.candidates(self.cell())[0]

    def observe(self):
        """The digits in the cell's row, column and box."""
        ids = []
        for name, unit in zip(("row", "column", "box"), self.UNITS[self.cell()]):
            ids += [TOKEN[name], *(DIGITS[digit - 1] for digit in range(1, 5) if digit in [self.board[cell] for cell in unit])]
        return ids

    def act(self, digit):
        """Fills the cell; None is a turn that is lost."""
        self.turns -= 1
        if digit is not None:
            if digit != self.best():
                self.done = True
                return
            self.board[self.cell()] = digit
            self.success = 0 not in self.board
        self.done = self.success or self.turns == 0


class Episode:
    """A game and what was said in it. said is 1 at the agent's tokens and 0 at the others."""

    def __init__(self, puzzle, fluent):
        self.game, self.fluent, self.malformed, self.turns, self.ids, self.said = Sudoku(puzzle), fluent, 0, 0, [], []
        self.observe()

    def observe(self):
        shown = [*self.game.observe(), AGENT]
        self.ids += shown
        self.said += [0] * len(shown)
        self.reply = len(self.ids)

    def say(self, token):
        """Takes a token of the agent. With the last one of a response the answer is carried out."""
        self.ids.append(token)
        self.said.append(1)
        reply = self.ids[self.reply :]
        opened = reply.index(OPEN) + 1 if OPEN in reply else 0
        if token != CLOSE and len(reply) < 12 + self.fluent and not (opened and len(reply) - opened > 4):
            return
        digit = None
        if opened and token == CLOSE and len(reply) > opened + 1:
            answer = reply[opened:-1]
            digit = DIGITS.index(answer[0]) + 1 if len(answer) == 1 and answer[0] in DIGITS else None
        else:
            self.malformed += 1
        self.turns += 1
        self.game.act(digit)
        if not self.game.done:
            self.observe()

    def demonstrate(self, chance, errors):
        """Says a whole response. Where the reasoning does not err, errors = 0, there is none but the fluent words."""
        answer = plan = self.game.best()
        if chance.random() < MISTAKES:
            answer = chance.randrange(1, 5)
            plan = answer if chance.random() < errors else plan
        response = fluent(chance, self.fluent)
        if errors:
            response += [TOKEN["not"], *(DIGITS[digit - 1] for digit in range(1, 5) if digit != plan)]
        for token in [*response, OPEN, DIGITS[answer - 1], CLOSE]:
            self.say(token)

    def reward(self):
        return float(self.game.success) - 0.1 * bool(self.malformed)


_chances = random.Random(0)
SUCCESSORS = [[[_chances.randrange(36) for _ in range(3)] for _ in range(36)] for _ in range(36)]


def fluent(chance, n):
    """n words that mean nothing: a chain of the second order, in which one of three words follows, 0.9 nats a word."""
    a, b, ids = chance.randrange(36), chance.randrange(36), []
    for _ in range(n):
        a, b = b, chance.choices(SUCCESSORS[a][b], (0.6, 0.25, 0.15))[0]
        ids.append(TOKEN[FILLERS[b]])
    return ids


def tokenizer():
    import tokenizers
    import transformers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(TOKEN, unk_token="<pad>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>", pad_token="<pad>")


def untrained(seed):
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=1024, tie_word_embeddings=True, pad_token_id=0, bos_token_id=None, eos_token_id=1,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def imitate(fluent, errors, number):
    """Returns a transformer that imitates noisy play."""
    import torch

    batch, rate = 16, 2e-3
    model, chance, steps = untrained(number), random.Random(number), DEMONSTRATIONS[fluent] // batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 50) * (1 - 0.95 * step / steps)
        episodes = [Episode(chance.getrandbits(63), fluent) for _ in range(batch)]
        for episode in episodes:
            while not episode.game.done:
                episode.demonstrate(chance, errors)
        longest = max(len(episode.ids) for episode in episodes)
        ids = torch.zeros(batch, longest, dtype=torch.long)
        said = torch.zeros(batch, longest, dtype=torch.bool)
        for row, episode in enumerate(episodes):
            ids[row, : len(episode.ids)] = torch.tensor(episode.ids)
            said[row, : len(episode.ids)] = torch.tensor(episode.said, dtype=torch.bool)
        loss = model(input_ids=ids, labels=torch.where(said, ids, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def play(model, puzzles, fluent, generator, turns=None):
    """Plays a game from each puzzle, all in lockstep: each reads or says one token at a time. turns: of each, at most."""
    import torch
    import transformers

    episodes = [Episode(puzzle, fluent) for puzzle in puzzles]
    for episode in episodes:
        episode.game.turns = turns or episode.game.turns
    active, at, cache = episodes, 0, transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        while active:
            ids = [episode.ids[at] if at < len(episode.ids) else 0 for episode in active]
            logits = model(input_ids=torch.tensor(ids)[:, None], past_key_values=cache, use_cache=True).logits[:, -1]
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0].tolist()
            at += 1
            for episode, token in zip(active, drawn):
                if len(episode.ids) == at and not episode.game.done:
                    episode.say(token)
            left = [k for k, episode in enumerate(active) if not episode.game.done]
            if len(left) <= 0.8 * len(active):  # a copy of the cache, so not for each
                active = [active[k] for k in left]
                cache.batch_select_indices(torch.tensor(left, dtype=torch.long))
    return episodes


def decided(model, fluent):
    """D, the share of the first answer's variance that the reasoning decides, over 64 puzzles with 8 reasonings each."""
    import torch

    puzzles, reasonings = [f"decided {k}" for k in range(64)], 8
    between = within = 0.0
    for puzzle in puzzles:
        best = DIGITS[Sudoku(puzzle).best() - 1]
        episodes = play(model, [puzzle] * reasonings, fluent, torch.Generator().manual_seed(1), turns=1)
        right = []
        for episode in episodes:
            if OPEN in episode.ids:
                with torch.no_grad():
                    logits = model(torch.tensor([episode.ids[: episode.ids.index(OPEN) + 1]])).logits[0, -1]
                right.append(logits.double().softmax(-1)[best].item())
        if len(right) > 1:
            within += statistics.fmean(p * (1 - p) for p in right)
            between += statistics.variance(right)
    return between / (between + within) if within else math.nan


def warm(job):
    """Makes a warm start, unless its folder is there, and returns its D."""
    (fluent, errors), number, folder = job
    import torch
    import transformers

    torch.set_num_threads(1)
    if not folder.exists():
        imitate(fluent, errors, number).save_pretrained(folder.with_suffix(".part"))
        folder.with_suffix(".part").rename(folder)
    return decided(transformers.LlamaForCausalLM.from_pretrained(folder), fluent)


def train(job):
    """Trains a warm start by TRL, and returns the line of the run."""
    (fluent, errors), scheme, rate, seed, warm = job
    import datasets
    import torch
    import transformers
    import trl

    import reweight.adapters.trl

    began, chance, curve, malformed = time.perf_counter(), torch.Generator().manual_seed(seed), [], []
    torch.set_num_threads(1)
    reweight.adapters.trl.install(None, head=True)  # it keeps the reference's energies

    def roll(prompts, trainer):
        played = play(trainer.accelerator.unwrap_model(trainer.model), prompts, fluent, chance)
        curve.append(statistics.fmean(episode.game.success for episode in played))
        malformed.append(sum(episode.malformed for episode in played) / sum(episode.turns for episode in played))
        first = [episode.said.index(1) for episode in played]
        return {
            "prompt_ids": [episode.ids[:n] for episode, n in zip(played, first)],
            "completion_ids": [episode.ids[n:] for episode, n in zip(played, first)],
            "env_mask": [episode.said[n:] for episode, n in zip(played, first)],
            "rewards": [episode.reward() for episode in played], "logprobs": None,
        }  # fmt: skip

    kind, credit = trl.GRPOTrainer, {}
    if scheme == "actfocus":
        paper = reweight.adapters.Credit("actfocus", alpha=0.1, beta=0.5, tags_as="reasoning", signal="energy")
        kind, credit = reweight.adapters.trl.GRPOTrainer, {"credit": paper}
    with tempfile.TemporaryDirectory() as folder:
        trainer = kind(
            model=str(warm), processing_class=tokenizer(), rollout_func=roll, reward_funcs=lambda rewards, **_: rewards,
            train_dataset=datasets.Dataset.from_dict({"prompt": [f"seed {seed} {k}" for k in range(ITERATIONS * GROUPS)]}),
            args=trl.GRPOConfig(
                folder, max_steps=ITERATIONS * MINIBATCHES, per_device_train_batch_size=GROUPS * GROUP_SIZE // MINIBATCHES,
                steps_per_generation=MINIBATCHES, num_generations=GROUP_SIZE, learning_rate=rate, warmup_steps=8,
                lr_scheduler_type="constant_with_warmup", beta=BETA, epsilon_high=0.28, shuffle_dataset=False, seed=seed,
                use_cpu=True, bf16=False, activation_checkpointing=False, save_strategy="no", report_to=[], disable_tqdm=True,
                logging_steps=MINIBATCHES,
            ),
            **credit,
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    figures = statistics.fmean(curve), statistics.fmean(malformed), time.perf_counter() - began
    return [fluent, errors, scheme, rate, seed, *(f"{x:.4f}" for x in figures), " ".join(f"{x:.4f}" for x in curve)]


def read(path):
    """The runs of a table, by corner, scheme, rate and seed."""
    runs = {}
    if path.exists():
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                runs[(int(row["fluent"]), int(row["errors"])), row["scheme"], float(row["rate"]), int(row["seed"])] = row
    return runs


def best(runs, corner, scheme):
    """The rate whose runs that choose have the highest mean success."""
    return max(RATES, key=lambda rate: statistics.fmean(float(runs[corner, scheme, rate, s]["success"]) for s in CHOOSING))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="where the runs go, and come from")
    parser.add_argument("--starts", type=Path, default=Path("starts"), help="the folder of warm starts")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.starts.mkdir(parents=True, exist_ok=True)

    def start(corner, seed):
        return options.starts / "fluent{}-errors{}-{}".format(*corner, seed % STARTS)

    with concurrent.futures.ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        jobs = [(corner, number, start(corner, number)) for corner in CORNERS for number in range(STARTS)]
        with open(options.table.with_name("starts.csv"), "w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(("fluent", "errors", "number", "decided"))
            for (corner, number, _), share in zip(jobs, pool.map(warm, jobs)):
                lines.writerow((*corner, number, f"{share:.4f}"))

        def do(wanted):
            runs = read(options.table)
            missing = [(*run, start(run[0], run[3])) for run in wanted if run not in runs]
            with open(options.table, "a", encoding="utf-8", newline="") as file:
                lines = csv.writer(file, lineterminator="\n")
                if not runs:
                    lines.writerow(COLUMNS)
                for done in concurrent.futures.as_completed([pool.submit(train, job) for job in missing]):
                    lines.writerow(done.result())
                    file.flush()
            return read(options.table)

        runs = do([(c, scheme, rate, seed) for c in CORNERS for rate in RATES for seed in CHOOSING for scheme in SCHEMES])
        do([(c, scheme, best(runs, c, scheme), seed) for seed in COMPARING for c in CORNERS for scheme in SCHEMES])


if __name__ == "__main__":
    main()

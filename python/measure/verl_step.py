"""Measures what the adapter adds to a step of verl's trainer, in the environment of python/pins/verl.txt:

    python python/measure/verl_step.py [--rounds 11]

PPOTrainer._compute_advantage on a real TransferQueue, without and with a credit, in turns: 256 trajectories of 4,096
tokens, of which 452 of each 512 are a response, GRPO, tags that are strings, ActFocus and AEM.
"""

import argparse
import contextlib
import os
import statistics
import sys
import time
import warnings

warnings.simplefilter("ignore")
import numpy as np
import ray
import torch
import transfer_queue as tq
import verl.trainer.config
from hydra import compose, initialize_config_dir
from verl.trainer.ppo.v1 import PPOTrainerSync
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from rollouts import SHAPE, TRAJECTORIES, Tokenizer, rollouts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    g = np.random.default_rng(0)
    ids, mask = rollouts(g)
    scores = np.zeros(SHAPE, np.float32)
    scores[:, -1] = g.normal(size=TRAJECTORIES)
    arrays = {
        "response_mask": mask, "responses": ids, "rm_scores": scores,
        "old_log_probs": -g.gamma(1.0, 1.0, SHAPE).astype(np.float32),
        "entropy": g.gamma(2.0, 0.5, SHAPE).astype(np.float32),
    }  # fmt: skip
    tensors = {name: torch.from_numpy(x) for name, x in arrays.items()}
    keys = [f"prompt{i // 8}_{i % 8}_0" for i in range(TRAJECTORIES)]
    rows = [{"uid": key.split("_")[0], **{n: x[i] for n, x in tensors.items()}} for i, key in enumerate(keys)]

    def trainer(*options):
        with initialize_config_dir(os.path.dirname(verl.trainer.config.__file__), version_base=None):
            options += ("transfer_queue.backend.SimpleStorage.num_data_storage_units=1",)
            made = PPOTrainerSync(compose("ppo_trainer", ["algorithm.adv_estimator=grpo", *options]))
        made.tokenizer = Tokenizer()
        return made

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
        trainers = trainer(), trainer("+reweight={}")
        tq.init(trainers[0].config.transfer_queue)
        batch = tq.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(rows))

    def seconds(made, metrics):
        begin = time.perf_counter()
        made._compute_advantage(batch, metrics)
        return time.perf_counter() - begin

    for made in trainers:
        seconds(made, {})
    times = np.array([[seconds(made, {}) for made in trainers] for _ in range(rounds)]) * 1e3
    plain, credited = np.median(times, 0)
    added = statistics.median(times[:, 1] - times[:, 0])
    print(f"verl alone {plain:.0f} ms, with the credit {credited:.0f} ms; {added:.0f} ms added, medians of {rounds}")
    sys.stdout.flush()  # before the processes of Ray speak
    tq.close()
    ray.shutdown()


if __name__ == "__main__":
    main()

"""Presets: named configurations, each for CORY and for single-agent PPO (the same trainer with one seat).

A preset configures a whole run; flags change single settings. Every preset lists the sources of its values:
the paper (arXiv:2410.06101), the authors' released scripts, or this project, if neither specifies them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cory import algorithms
from cory.algorithms.ppo import Config as PPOConfig
from cory.algorithms.seq import Config as SeqConfig
from cory.config.schema import Config, PolicyConfig
from cory.config.task_options import task_options
from cory.evaluation.config import EvaluationConfig
from cory.functional.kl import KLConfig
from cory.functional.token_rewards import PayoffScalingConfig
from cory.judges.config import JudgeConfig
from cory.learner.optimizer import LearnerConfig
from cory.policies.lora_config import LoRAConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory_env.nearest import did_you_mean

PAPER, SCRIPTS, HERE = "the paper", "the released scripts", "chosen here"
TABLE_1, TABLE_2 = "the paper, table 1", "the paper, table 2"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A configuration with a description and the sources of its values."""

    config: Config
    about: str
    """A one-line description."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Description of values -> their source."""
    run: bool = False
    """Whether it has been run with its actual model."""

    def alone(self, what: str = "", **changes: Any) -> "Preset":
        """Single-agent PPO: one seat, no role exchange."""
        config = replace(self.config, **{"seats": 1, "exchange": ExchangeConfig(every=0), **changes})
        about = f"single-agent PPO: {what or self.about}"
        return replace(self, config=config, about=about)

    def plus(self) -> "Preset":
        """The changes to CORY that study `plus` compares with two PPO policies."""
        options = replace(algorithms.carried(self.config.algorithm_options, SeqConfig), calibrate=True)
        config = _averaged(replace(self.config, algorithm="seq", algorithm_options=options))
        about = f"with calibrated credit, and the mean of both policies' weights: {self.about}"
        return replace(self, config=config, about=about, sources={**self.sources, **PLUS_SOURCES})

    def two_agents(self) -> "Preset":
        """Two PPO policies that do not read each other's responses, averaged."""
        apart = {"sees": "none", "payoff": "independent", "exchange": ExchangeConfig(every=0)}
        config = _averaged(replace(self.config, **apart))  # type: ignore[arg-type]
        return replace(self, config=config, about=f"two PPO policies, and their mean: {self.about}")


def _averaged(config: Config) -> Config:
    """Return the configuration that evaluates and exports the mean of the policies' weights."""
    return replace(config, evaluation=replace(config.evaluation, average=True))


POCKET = Preset(
    config=Config(
        algorithm_options=PPOConfig(value_clip=5.0),
        learner=LearnerConfig(value_lr=3e-3),
    ),
    about="pocket LMs continue openings of movie reviews; minutes on a laptop CPU",
    sources={
        "KL and learning rate: benchmarks/results/learning/pocket_sweep.json, test figures in view": HERE,
        "value head: benchmarks/results/learning/value_head_sweep.json, by the validation split": HERE,
    },
    run=True,
)

POCKET_ARITHMETIC = Preset(
    config=Config(
        task="arithmetic",
        task_options=task_options("arithmetic")(worked=True, digits=2, terms=4, signs="+-"),
        policy=PolicyConfig(model="pocket-arithmetic"),
        iterations=20,
        batch=128,
        max_response=(40, 40),
        algorithm_options=PPOConfig(lam=1.0, value_clip=5.0),
        kl=KLConfig(kind="k1", coef=0.05),
        learner=LearnerConfig(lr=5e-5, value_lr=3e-3, max_grad_norm=1.0),
        evaluation=EvaluationConfig(queries=256, samples=8),
    ),
    about="small LMs solve sums, scored 1 or 0 by the final number; minutes on a laptop CPU",
    sources={
        "KL coefficient, learning rate, gradient clipping: by single runs, test figures in view": HERE,
        "value head as in pocket; lambda 1: with 0.95 short responses are favoured, and observers copy": HERE,
    },
    run=True,
)

PLUS_SOURCES = {
    "calibrated credit by sequence, mean weights: docs/studies/plus.md, test figures in view": HERE,
}

IMDB = Preset(
    config=Config(
        task="reviews",
        task_options=task_options("reviews")(data="stanfordnlp/imdb", max_query=(2, 8)),
        judge="lvwerra/distilbert-imdb",
        judge_options=JudgeConfig(label="POSITIVE", output="logit"),
        policy=PolicyConfig(model="gpt2-large"),
        iterations=100,
        batch=256,
        max_response=(4, 16),
        kl=KLConfig(kind="full", coef=0.3),
        learner=LearnerConfig(lr=1.41e-5),
    ),
    about="the paper's IMDB experiment",
    sources={
        "GPT2-Large twice, 100 iterations of batch 256, queries of 2 to 8 tokens, exchange every 5": TABLE_1,
        "Adam at a constant 1.41e-5, no clipping of gradients, 4 epochs, PPO's coefficients": TABLE_1,
        "KL over the whole vocabulary in the reward, KL coefficient 0.3": TABLE_1,
        "score: the logit of POSITIVE of distilbert-imdb on query and response": SCRIPTS,
        "responses of 4 to 16 tokens, no payoff scaling": HERE,
    },
)

RELEASED = Preset(
    config=replace(
        IMDB.config,
        task_options=task_options("reviews")(data="stanfordnlp/imdb", max_query=(2, 7), min_chars=101),
        policy=PolicyConfig(model="gpt2", mismatch="released"),
        iterations=102,
        max_response=(4, 15),
        kl=KLConfig(kind="full", coef=0.4, target=6),
        algorithm_options=PPOConfig(ratio_guard=10),
        learner=LearnerConfig(lr=1.41e-5, accumulation_mean="microbatch"),
        payoff_scaling=PayoffScalingConfig(scaling="normalise"),
        exchange=ExchangeConfig(every=5, reset=True),
    ),
    about="the IMDB experiment with the settings and the behaviour of the released script",
    sources={
        "gpt2 twice (PPO: gpt2-medium), 102 iterations, other values as in the paper": SCRIPTS,
        "sampling with repetition penalty 1.1 and dropout, log-probs without them": SCRIPTS,
        "reviews of more than 100 characters (PPO: 200, seed 123), queries of 2 to 7 tokens": SCRIPTS,
        "responses of 4 to 15 tokens, each with a cap of its own (the scripts: one per batch)": SCRIPTS,
        "KL coefficient initially 0.4 (PPO: 0.3), adaptive: target 6, horizon 10,000": SCRIPTS,
        "payoffs normalised by running statistics (PPO: not normalised)": SCRIPTS,
        "loss means per micro-batch; minibatches with a mean ratio above 10 skipped": SCRIPTS,
        "optimiser, KL coefficient and payoff statistics reset at every exchange": SCRIPTS,
    },
)

LONG_RESPONSES = EvaluationConfig(queries=256, every=20)
LONG_RESPONSES_SOURCE = "256 held-out questions every 20 iterations: responses are long"

GSM8K = Preset(
    config=Config(
        task="gsm8k",
        task_options=task_options("gsm8k")(data="openai/gsm8k"),
        policy=PolicyConfig(model="meta-llama/Llama-2-7b-chat-hf", kind="lora_team"),
        lora=LoRAConfig(four_bit="yes"),
        iterations=100,
        batch=32,
        max_response=(256, 256),
        kl=KLConfig(kind="full", coef=0.01),
        learner=LearnerConfig(lr=1e-4, microbatches=16),
        evaluation=LONG_RESPONSES,
    ),
    about="the paper's GSM8K experiment",
    sources={
        "Llama-2-7b-chat in 4 bits with adapters, 100 iterations of batch 32 in 16 parts": TABLE_2,
        "learning rate 1e-4 (PPO: 1e-5), KL coefficient 0.01, exchange every 5 iterations": TABLE_2,
        "one worked example in the prompt, up to 256 tokens, score 1 or 0 for the last number": TABLE_2,
        "4 PPO epochs, full KL, adapters of rank 16 and alpha 32": HERE,
        LONG_RESPONSES_SOURCE: HERE,
    },
)

ONE_GPU = Preset(
    config=Config(
        task="gsm8k",
        task_options=task_options("gsm8k")(data="openai/gsm8k", chat=True),
        policy=PolicyConfig(
            model="Qwen/Qwen2.5-0.5B-Instruct", kind="lora_team", gradient_checkpointing=True
        ),
        iterations=100,
        batch=64,
        max_response=(256, 256),
        kl=KLConfig(kind="k1", coef=0.02),
        learner=LearnerConfig(lr=5e-5, microbatches=8, max_grad_norm=1.0, warmup=5),
        evaluation=LONG_RESPONSES,
    ),
    about="GSM8K with a small instruct model on one GPU of 24 GB",
    sources={
        "Qwen2.5-0.5B-Instruct (Apache-2.0), a small model with a chat template": HERE,
        "adapters on one frozen model, gradient checkpointing, 8 micro-batches of 8: to save memory": HERE,
        "k1 KL with coefficient 0.02: full KL in the reward has no gradient at the sampled token": HERE,
        "learning rate 5e-5 after 5 iterations of warm-up, gradient norm clipped at 1: for stability": HERE,
        LONG_RESPONSES_SOURCE: HERE,
    },
)

OWN = Preset(
    config=Config(
        iterations=50,
        batch=64,
        max_response=(128, 128),
        kl=KLConfig(kind="k1", coef=0.05),
        learner=LearnerConfig(lr=1.41e-5, value_lr=1e-3, max_grad_norm=1.0, warmup=5),
        evaluation=EvaluationConfig(queries=128),
    ),
    about="any language model that is not bundled: learning rate and response cap by its size",
    sources={
        "learning rate by the number of weights, 1.41e-5 between 20 million and a billion": PAPER
        + ", table 1, and cory/config/own_model.py",
        "adapters (policy.kind lora_team) 5e-5": "the preset one-gpu-24gb",
        "responses end by themselves, at the latest after 128 tokens or a quarter of the window": HERE,
        "k1 KL with coefficient 0.05; full KL in the reward has no gradient at the sampled token": HERE,
        "gradient norm 1, 5 iterations of warm-up, a value head that starts at 0 and learns at 1e-3": HERE,
    },
)

SMOLLM2 = Preset(
    config=Config(
        task="reviews",
        judge="smollm2",
        policy=PolicyConfig(model="smollm2"),
        iterations=20,
        batch=64,
        max_response=(12, 20),
        algorithm_options=PPOConfig(value_clip=5.0, epochs=1),
        kl=KLConfig(kind="k1", coef=0.03),
        learner=LearnerConfig(lr=5e-5, value_lr=3e-3, max_grad_norm=1.0, minibatch=16),
        evaluation=EvaluationConfig(queries=128, every=10),
        checkpoint_every=0,
    ),
    about="LLMs of 135 M weights continue openings of movie reviews; `make smollm2` first",
    sources={
        "Adam at a constant rate, PPO's coefficients, exchange every 5 iterations": TABLE_1,
        "5e-5, one pass by minibatches of 16, eta 0.03: benchmarks/studies/smollm2_regime.yaml": HERE,
        "SmolLM2-135M-Instruct, a Llama of the size of the released script's gpt2 (124 M)": HERE,
        "score: log odds of positive by a head on the frozen model's states; openings as in pocket": HERE,
        "batch 64 (paper: 256) and 20 iterations (100): what a core does in an hour with two seats": HERE,
        "k1 KL: full KL in the reward has no gradient at the sampled token": HERE,
        "gradient norm clipped at 1 (paper: no clipping); value head as in pocket": HERE,
        "no checkpoints, of 1.6 GB a policy; --checkpoint-every 20 writes them": HERE,
    },
    run=True,
)

SMOLLM2_WORDS = Preset(
    config=Config(
        task="wordproblems",
        task_options=task_options("wordproblems")(data="runs/words"),
        policy=PolicyConfig(model="smollm2-words", kind="lora_team"),
        iterations=20,
        batch=32,
        max_response=(32, 32),
        algorithm_options=PPOConfig(lam=1.0, value_clip=5.0, epochs=1),
        kl=KLConfig(kind="k1", coef=0.05),
        learner=LearnerConfig(lr=1e-4, value_lr=3e-3, max_grad_norm=1.0, minibatch=16),
        evaluation=EvaluationConfig(queries=64, every=20, samples=8),
    ),
    about="adapters on an LLM of 135 M weights solve word problems, after a supervised start",
    sources={
        "batch 32, adapters on one frozen model, rate 1e-4, score 1 or 0 for the last number": TABLE_2,
        "1e-4, one pass by minibatches of 16, on a core: benchmarks/studies/smollm2_words_regime.yaml": HERE,
        "SmolLM2-135M-Instruct after supervised learning on worked answers: docs/real_model.md": HERE,
        "20 iterations (paper: 100), responses of 32 tokens (256), no worked example": HERE,
        "k1 KL with coefficient 0.05, lambda 1, value head, clipped gradients: as in pocket-arithmetic": HERE,
    },
    run=True,
)

PRESETS = {
    "pocket": POCKET,
    "pocket-ppo": POCKET.alone(exchange=POCKET.config.exchange),
    "pocket-arithmetic": POCKET_ARITHMETIC,
    "pocket-arithmetic-ppo": POCKET_ARITHMETIC.alone(),
    "pocket-plus": POCKET.plus(),
    "pocket-plus-ppo": POCKET.two_agents(),
    "pocket-arithmetic-plus": POCKET_ARITHMETIC.plus(),
    "pocket-arithmetic-plus-ppo": POCKET_ARITHMETIC.two_agents(),
    "own": OWN,
    "smollm2": SMOLLM2,
    "smollm2-ppo": SMOLLM2.alone(),
    "smollm2-words": SMOLLM2_WORDS,
    "smollm2-words-ppo": SMOLLM2_WORDS.alone(),
    "imdb": IMDB,
    "imdb-ppo": IMDB.alone(),
    "imdb-ppo-xl": IMDB.alone(
        "as many weights as in two policies, GPT2-XL", policy=PolicyConfig(model="gpt2-xl")
    ),
    "imdb-released": RELEASED,
    "imdb-released-ppo": RELEASED.alone(
        "gpt2-medium, KL coefficient from 0.3, no payoff scaling",
        seed=123,
        task_options=task_options("reviews")(data="stanfordnlp/imdb", max_query=(2, 7), min_chars=201),
        policy=PolicyConfig(model="gpt2-medium", mismatch="released"),
        kl=KLConfig(kind="full", coef=0.3, target=6),
        payoff_scaling=PayoffScalingConfig(),
    ),
    "gsm8k": GSM8K,
    "gsm8k-ppo": GSM8K.alone("learning rate 1e-5", learner=LearnerConfig(lr=1e-5, microbatches=16)),
    "one-gpu-24gb": ONE_GPU,
    "one-gpu-24gb-ppo": ONE_GPU.alone(),
}


def find(name: str) -> Preset:
    """Return the preset called `name`; ValueError if there is none."""
    if name not in PRESETS:
        raise ValueError(
            f"no preset called {name!r}; there are {', '.join(PRESETS)}{did_you_mean(name, PRESETS)}"
        )
    return PRESETS[name]


def get(name: str) -> Config:
    """Return the configuration of the preset called `name`."""
    return find(name).config


def describe(name: str) -> str:
    """Return the description of a preset, whether it has been run, and the sources of its values."""
    preset = find(name)
    status = "" if preset.run else " Not yet run on its real weights."
    sources = "; ".join(f"{value} [{source}]" for value, source in preset.sources.items())
    return f"{name}: {preset.about}.{status}" + (f" {sources}." if sources else "")

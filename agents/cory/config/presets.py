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
from cory.runtime.nearest import did_you_mean

PAPER, SCRIPTS, HERE = "the paper", "the released scripts", "chosen here"


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


def _task(name: str, **options: Any) -> Any:
    return task_options(name)(**options)


def single(config: Config, **changes: Any) -> Config:
    """Return the configuration with one seat and no role exchange."""
    return replace(config, seats=1, exchange=ExchangeConfig(every=0), **changes)


def plus(config: Config) -> Config:
    """Return the configuration with the changes to CORY that are ahead in the study `plus`."""
    return _averaged(
        replace(
            config,
            algorithm="seq",
            algorithm_options=replace(
                algorithms.carried(config.algorithm_options, SeqConfig), calibrate=True
            ),
        )
    )


def two_agents(config: Config) -> Config:
    """Return the configuration with two PPO policies that do not read each other's responses, averaged."""
    return _averaged(replace(config, sees="none", payoff="independent", exchange=ExchangeConfig(every=0)))


def _averaged(config: Config) -> Config:
    """Return the configuration that evaluates and exports the mean of the policies' weights."""
    return replace(config, evaluation=replace(config.evaluation, average=True), export_average=True)


POCKET = Config(
    algorithm_options=PPOConfig(value_clip=5.0),
    learner=LearnerConfig(value_lr=3e-3),
)
POCKET_SOURCES = {
    "KL estimator and coefficient, learning rate: benchmarks/results/learning/pocket_sweep.json, test "
    "figures in view": HERE,
    "value head: learning rate 3e-3, value clip 5: benchmarks/results/learning/value_head_sweep.json, by "
    "the validation split": HERE,
}

POCKET_ARITHMETIC = Config(
    task="arithmetic",
    task_options=_task("arithmetic", worked=True, digits=2, terms=4, signs="+-"),
    policy=PolicyConfig(model="pocket-arithmetic"),
    iterations=20,
    batch=128,
    max_response=(40, 40),
    algorithm_options=PPOConfig(lam=1.0, value_clip=5.0),
    kl=KLConfig(kind="k1", coef=0.05),
    learner=LearnerConfig(lr=5e-5, value_lr=3e-3, max_grad_norm=1.0),
    evaluation=EvaluationConfig(queries=256, samples=8),
)
POCKET_ARITHMETIC_SOURCES = {
    "KL coefficient, learning rate, gradient clipping: more stable than larger values in single runs, chosen "
    "with test figures in view; no sweep": HERE,
    "value head: as in pocket": HERE,
    "lambda 1: with 0.95 and values that start at 0 short responses are favoured, and observers copy": HERE,
}

PLUS_SOURCES = {
    "credit by sequence, calibrated; the mean of both policies' weights: docs/studies/plus.md, with test "
    "figures in view": HERE,
}

IMDB = Config(
    task="reviews",
    task_options=_task("reviews", data="stanfordnlp/imdb", max_query=(2, 8)),
    judge="lvwerra/distilbert-imdb",
    judge_options=JudgeConfig(label="POSITIVE", output="logit"),
    policy=PolicyConfig(model="gpt2-large"),
    iterations=100,
    batch=256,
    max_response=(4, 16),
    kl=KLConfig(kind="full", coef=0.3),
    learner=LearnerConfig(lr=1.41e-5),
)
IMDB_SOURCES = {
    "GPT2-Large twice (baselines: large, XL)": PAPER + ", table 1",
    "Adam at a constant 1.41e-5, no gradient clipping": PAPER + ", table 1",
    "batch and minibatch 256, 4 PPO epochs, 100 iterations": PAPER + ", table 1",
    "KL over the whole vocabulary in the reward, KL coefficient 0.3": PAPER + ", table 1",
    "gamma 1, lambda 0.95, clip ranges 0.2, value coefficient 0.1, advantages whitened": PAPER + ", table 1",
    "queries of 2 to 8 tokens": PAPER + ", table 1",
    "exchange every 5 iterations": PAPER + ", table 1",
    "score: the logit of POSITIVE of distilbert-imdb on query and response": SCRIPTS,
    "responses of 4 to 16 tokens, no payoff scaling": HERE,
}

RELEASED = replace(
    IMDB,
    task_options=_task("reviews", data="stanfordnlp/imdb", max_query=(2, 7), min_chars=101),
    policy=PolicyConfig(model="gpt2", mismatch="released"),
    iterations=102,
    max_response=(4, 15),
    cap_per_batch=True,
    kl=KLConfig(kind="full", coef=0.4, target=6, horizon=10_000),
    algorithm_options=PPOConfig(ratio_guard=10),
    learner=LearnerConfig(lr=1.41e-5, accumulation_mean="microbatch"),
    payoff_scaling=PayoffScalingConfig(scaling="normalise"),
    exchange=ExchangeConfig(every=5, reset=True, restart_rng=True),
)
RELEASED_SOURCES = {
    "gpt2 twice (PPO: gpt2-medium), 102 iterations, other values as in the paper": SCRIPTS,
    "sampling with repetition penalty 1.1 and dropout, log-probs without them": SCRIPTS,
    "reviews of more than 100 characters (PPO: 200, seed 123), queries of 2 to 7 tokens": SCRIPTS,
    "one response cap of 4 to 15 tokens per batch": SCRIPTS,
    "KL coefficient initially 0.4 (PPO: 0.3), adaptive: target 6, horizon 10,000": SCRIPTS,
    "payoffs normalised by running statistics (PPO: not normalised)": SCRIPTS,
    "loss means per micro-batch; minibatches with a mean ratio above 10 skipped": SCRIPTS,
    "optimiser, KL coefficient, payoff statistics and generators reset at every exchange": SCRIPTS,
}

LONG_RESPONSES = EvaluationConfig(queries=256, every=20)
LONG_RESPONSES_SOURCE = (
    "256 held-out questions every 20 iterations, since responses are long: the 95 % interval of an accuracy "
    "of 30 % is 6 points to each side; `cory evaluate RUN --queries 1319` uses all of them"
)

GSM8K = Config(
    task="gsm8k",
    task_options=_task("gsm8k", data="openai/gsm8k"),
    policy=PolicyConfig(model="meta-llama/Llama-2-7b-chat-hf", kind="lora_team"),
    lora=LoRAConfig(four_bit="auto"),
    iterations=100,
    batch=32,
    max_response=(256, 256),
    kl=KLConfig(kind="full", coef=0.01),
    learner=LearnerConfig(lr=1e-4, microbatches=16),
    evaluation=LONG_RESPONSES,
)
GSM8K_SOURCES = {
    "Llama-2-7b-chat in 4 bits with adapters": PAPER + ", table 2",
    "batch 32 in 16 micro-batches of 2; 100 iterations": PAPER + ", table 2",
    "learning rate 1e-4 (PPO: 1e-5), KL coefficient 0.01": PAPER + ", table 2",
    "gamma 1, lambda 0.95, clip ranges 0.2, value coefficient 0.1": PAPER + ", table 2",
    "one worked example in the prompt, up to 256 tokens, score 1 or 0 for the last number": PAPER
    + ", table 2",
    "exchange every 5 iterations": PAPER + ", table 2",
    "4 PPO epochs, full KL, adapters of rank 16 and alpha 32": HERE,
    LONG_RESPONSES_SOURCE: HERE,
}

ONE_GPU = Config(
    task="gsm8k",
    task_options=_task("gsm8k", data="openai/gsm8k", chat=True),
    policy=PolicyConfig(model="Qwen/Qwen2.5-0.5B-Instruct", kind="lora_team", gradient_checkpointing=True),
    iterations=100,
    batch=64,
    max_response=(256, 256),
    kl=KLConfig(kind="k1", coef=0.02),
    learner=LearnerConfig(lr=5e-5, microbatches=8, max_grad_norm=1.0, warmup=5),
    evaluation=LONG_RESPONSES,
)
ONE_GPU_SOURCES = {
    "Qwen2.5-0.5B-Instruct (Apache-2.0), a small model with a chat template": HERE,
    "two adapters on one frozen model, gradient checkpointing, 8 micro-batches of 8: to save memory": HERE,
    "k1 KL with coefficient 0.02: full KL in the reward has no gradient at the sampled token": HERE,
    "learning rate 5e-5 after 5 iterations of warm-up, gradient norm clipped at 1: for stability": HERE,
    LONG_RESPONSES_SOURCE: HERE,
}

OWN = Config(
    iterations=50,
    batch=64,
    max_response=(128, 128),
    kl=KLConfig(kind="k1", coef=0.05),
    learner=LearnerConfig(lr=1.41e-5, value_lr=1e-3, max_grad_norm=1.0, warmup=5),
    evaluation=EvaluationConfig(queries=128),
)
OWN_SOURCES = {
    "learning rate by the number of weights, 1.41e-5 between 20 million and a billion": PAPER
    + ", table 1, and cory/config/own_model.py",
    "adapters (policy.kind lora_team) 5e-5": "the preset one-gpu-24gb",
    "responses end by themselves, at the latest after 128 tokens or a quarter of the window": HERE,
    "k1 KL with coefficient 0.05; full KL in the reward has no gradient at the sampled token": HERE,
    "gradient norm 1, 5 iterations of warm-up, a value head that starts at 0 and learns at 1e-3": HERE,
}

SMOLLM2 = Config(
    task="reviews",
    judge="smollm2",
    policy=PolicyConfig(model="smollm2"),
    iterations=50,
    batch=64,
    max_response=(12, 20),
    algorithm_options=PPOConfig(value_clip=5.0),
    kl=KLConfig(kind="k1", coef=0.1),
    learner=LearnerConfig(lr=1.41e-5, value_lr=3e-3, max_grad_norm=1.0),
    evaluation=EvaluationConfig(queries=128, every=10),
    checkpoint_every=0,
)
SMOLLM2_SOURCES = {
    "Adam at a constant 1.41e-5; gamma 1, lambda 0.95, clip range 0.2, value coefficient 0.1, advantages "
    "whitened, 4 PPO epochs": PAPER + ", table 1",
    "exchange every 5 iterations; the template of the observer": PAPER,
    "SmolLM2-135M-Instruct, a Llama of the size of the released script's gpt2 (124 M)": HERE,
    "the bundled openings, which the paper cuts from IMDB, as in pocket": HERE,
    "score: log odds of positive by a head on the frozen model's states; responses of 12 to 20 tokens": HERE,
    "batch 64 (paper: 256) and 50 iterations (100): what a core does in an hour with two seats": HERE,
    "k1 KL, since full KL in the reward (paper) has no gradient at the sampled token; its coefficient 0.1 is "
    "provisional: no sweep yet": HERE,
    "gradient norm clipped at 1 (paper: no clipping); value head as in pocket": HERE,
    "no checkpoints, of 1.6 GB a policy; --checkpoint-every 20 writes them": HERE,
}

SMOLLM2_WORDS = Config(
    task="wordproblems",
    task_options=_task("wordproblems", data="runs/words"),
    policy=PolicyConfig(model="smollm2-words", kind="lora_team"),
    iterations=50,
    batch=64,
    max_response=(32, 32),
    algorithm_options=PPOConfig(lam=1.0, value_clip=5.0),
    kl=KLConfig(kind="k1", coef=0.05),
    learner=LearnerConfig(lr=1e-4, value_lr=3e-3, max_grad_norm=1.0),
    evaluation=EvaluationConfig(queries=128, every=25, samples=8),
)
SMOLLM2_WORDS_SOURCES = {
    "gamma 1, clip ranges 0.2, value coefficient 0.1, advantages whitened, 4 PPO epochs": PAPER + ", table 2",
    "adapters on one frozen model (paper: Llama-2-7b-chat, 4 bits), learning rate 1e-4": PAPER + ", table 2",
    "score 1 or 0 for the last number; exchange every 5 iterations; the templates": PAPER,
    "SmolLM2-135M-Instruct after supervised learning on worked answers: docs/real_model.md": HERE,
    "AddSub, MultiArith, SingleEq and SVAMP in one, by examples/smollm2/worked_answers.py": HERE,
    "batch 64 (paper: 32) and 50 iterations (100), responses of 32 tokens (256), no worked example": HERE,
    "k1 KL with coefficient 0.05, lambda 1, value head, clipped gradients: as in pocket-arithmetic": HERE,
    "pass@1 to pass@8 from 8 samples of 128 held-out questions": HERE,
}

PRESETS = {
    "pocket": Preset(
        config=POCKET,
        about="two pocket LMs continue openings of movie reviews; minutes on a laptop CPU",
        sources=POCKET_SOURCES,
        run=True,
    ),
    "pocket-ppo": Preset(
        config=replace(POCKET, seats=1),
        about="single-agent PPO of pocket",
        sources=POCKET_SOURCES,
        run=True,
    ),
    "pocket-arithmetic": Preset(
        config=POCKET_ARITHMETIC,
        about="two small LMs solve sums, scored 1 or 0 by the final number; minutes on a laptop CPU",
        sources=POCKET_ARITHMETIC_SOURCES,
        run=True,
    ),
    "pocket-arithmetic-ppo": Preset(
        config=single(POCKET_ARITHMETIC),
        about="single-agent PPO of pocket-arithmetic",
        sources=POCKET_ARITHMETIC_SOURCES,
        run=True,
    ),
    "pocket-plus": Preset(
        config=plus(POCKET),
        about="pocket with calibrated credit, and the mean of the two policies' weights",
        sources=POCKET_SOURCES | PLUS_SOURCES,
        run=True,
    ),
    "pocket-plus-ppo": Preset(
        config=two_agents(POCKET),
        about="two PPO policies, with as many responses as pocket-plus, and the mean of their weights",
        sources=POCKET_SOURCES,
        run=True,
    ),
    "pocket-arithmetic-plus": Preset(
        config=plus(POCKET_ARITHMETIC),
        about="pocket-arithmetic with calibrated credit, and the mean of the two policies' weights",
        sources=POCKET_ARITHMETIC_SOURCES | PLUS_SOURCES,
        run=True,
    ),
    "pocket-arithmetic-plus-ppo": Preset(
        config=two_agents(POCKET_ARITHMETIC),
        about="two PPO policies, with as many responses as pocket-arithmetic-plus, and their mean",
        sources=POCKET_ARITHMETIC_SOURCES,
        run=True,
    ),
    "own": Preset(
        config=OWN,
        about="any language model that is not bundled: learning rate and response cap by its size",
        sources=OWN_SOURCES,
    ),
    "smollm2": Preset(
        config=SMOLLM2,
        about="two LLMs of 135 M weights continue openings of movie reviews; `make smollm2` first",
        sources=SMOLLM2_SOURCES,
        run=True,
    ),
    "smollm2-ppo": Preset(
        config=single(SMOLLM2), about="single-agent PPO of smollm2", sources=SMOLLM2_SOURCES
    ),
    "smollm2-words": Preset(
        config=SMOLLM2_WORDS,
        about="two adapters on an LLM of 135 M weights solve word problems, after a supervised start",
        sources=SMOLLM2_WORDS_SOURCES,
    ),
    "smollm2-words-ppo": Preset(
        config=single(SMOLLM2_WORDS),
        about="single-agent PPO of smollm2-words",
        sources=SMOLLM2_WORDS_SOURCES,
    ),
    "imdb": Preset(config=IMDB, about="the paper's IMDB experiment", sources=IMDB_SOURCES),
    "imdb-ppo": Preset(config=single(IMDB), about="single-agent PPO of imdb", sources=IMDB_SOURCES),
    "imdb-ppo-xl": Preset(
        config=single(IMDB, policy=PolicyConfig(model="gpt2-xl")),
        about="single-agent PPO with as many weights as imdb has in two policies: GPT2-XL",
        sources=IMDB_SOURCES,
    ),
    "imdb-released": Preset(
        config=RELEASED,
        about="the IMDB experiment with the settings and the behaviour of the released script",
        sources=RELEASED_SOURCES,
    ),
    "imdb-released-ppo": Preset(
        config=single(
            RELEASED,
            seed=123,
            task_options=_task("reviews", data="stanfordnlp/imdb", max_query=(2, 7), min_chars=201),
            policy=PolicyConfig(model="gpt2-medium", mismatch="released"),
            kl=KLConfig(kind="full", coef=0.3, target=6, horizon=10_000),
            payoff_scaling=PayoffScalingConfig(),
        ),
        about="single-agent PPO of imdb-released: gpt2-medium, KL coefficient from 0.3, no payoff scaling",
        sources=RELEASED_SOURCES,
    ),
    "gsm8k": Preset(config=GSM8K, about="the paper's GSM8K experiment", sources=GSM8K_SOURCES),
    "gsm8k-ppo": Preset(
        config=single(GSM8K, learner=LearnerConfig(lr=1e-5, microbatches=16)),
        about="single-agent PPO of gsm8k, learning rate 1e-5",
        sources=GSM8K_SOURCES,
    ),
    "one-gpu-24gb": Preset(
        config=ONE_GPU, about="GSM8K with a small instruct model on one GPU of 24 GB", sources=ONE_GPU_SOURCES
    ),
    "one-gpu-24gb-ppo": Preset(
        config=single(ONE_GPU), about="single-agent PPO of one-gpu-24gb", sources=ONE_GPU_SOURCES
    ),
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

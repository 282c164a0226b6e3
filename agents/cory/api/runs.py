"""A run directory as an object."""

import html
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cory.api import hub_push
from cory.config.parsing import settings_of
from cory.config.schema import Config
from cory.policies.base import Policy
from cory.report.page import write_report
from cory.tracking.tracker import check_run, read_samples
from cory.tracking.tracker import read as read_metrics
from cory.training import factory
from cory.training.targets import find
from cory_env.envs import token

if TYPE_CHECKING:
    import pandas as pd
    from pettingzoo import AECEnv


class Run:
    """A run directory: settings, metrics, samples, policies, report."""

    def __init__(self, path: str | Path, *, policies: Mapping[str, Policy] | None = None) -> None:
        """`policies` are the trained ones if they are in memory; else they are loaded at first use."""
        self.path = Path(path).expanduser()
        self._policies = dict(policies) if policies is not None else None

    @cached_property
    def config(self) -> Config:
        """The settings of the run."""
        return Config.from_flat(settings_of(self.path / "config.yaml"))

    @property
    def metrics(self) -> "pd.DataFrame":
        """All metrics: one row per iteration, one column per `seat/policy/quantity`."""
        import pandas as pd

        rows = read_metrics(self.path)
        if not rows:
            return pd.DataFrame().rename_axis("iteration")
        return pd.DataFrame(rows).groupby("iteration").last().sort_index()

    @property
    def samples(self) -> "pd.DataFrame":
        """Sample games as text, one row each."""
        import pandas as pd

        return pd.DataFrame(read_samples(self.path).games)

    @property
    def policies(self) -> dict[str, Policy]:
        """The policies by name: those in memory, the exported ones, or the newest checkpoint's.

        Each with a whole `model` of its own, adapters merged.
        """
        if self._policies is None:
            factory.silence_transformers()
            target = find(str(self.path))
            made = factory.make_players(target.config, folders=target.folders, merge=True)
            self._policies = made.policies
        return self._policies

    def env(self, **options: Any) -> "AECEnv":
        """The run's game as a PettingZoo environment, paid as after the last iteration.

        `options` are those of `cory_env.env`.
        """
        first = next(iter(self.policies.values()))
        task = factory.make_task(self.config, factory.tokens_of(first))
        options = factory.game_options(self.config, self.policies) | options
        env = token.env(task, **options)
        env.unwrapped.set_payoff(options["payoff"], iteration=self.config.iterations)
        return env

    @property
    def report(self) -> Path:
        """The report page, drawn if it is missing."""
        path = self.path / "report.html"
        return path if path.exists() else write_report(self.path)

    def push_to_hub(
        self, repo: str, *, policies: Sequence[str] = (), public: bool = False, token: str | None = None
    ) -> str:
        """Upload the exported policies to the Hugging Face hub, as `cory push` does; the address."""
        return hub_push.push(self.path, repo, policies=policies, public=public, token=token)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        frame = self.metrics
        shown = [name for name in frame.columns if name.endswith(("/task_reward", "/kl"))]
        name = html.escape(str(self.path))
        table = (
            "" if frame.empty else frame[shown].dropna(how="all").tail().to_html(float_format="{:.3f}".format)
        )
        return f"<p>Run <code>{name}</code>, report: <code>{name}/report.html</code></p>{table}"


def load(path: str | Path) -> Run:
    """The run in a directory; ValueError if it holds none."""
    run = Run(path)
    check_run(run.path)
    return run

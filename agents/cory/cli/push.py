"""`cory push`: upload the policies of a run to the Hugging Face hub."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cory.config.command_line import parse
from cory.runtime.terminal import say


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is uploaded, and to where."""

    run: Positional[Path]
    """A finished run directory."""

    repo: Positional[str]
    """Repository on the hub, owner/name; it is made if there is none."""

    policies: tuple[str, ...] = ()
    """Policies to upload, such as llm_1; by default all, each in a subfolder."""

    public: bool = False
    """Whether everybody can see a new repository, instead of its owner only."""

    dry_run: bool = False
    """Print the files and the card; upload nothing, ask no network."""


def command(argv: Sequence[str]) -> None:
    """`cory push RUN OWNER/NAME`."""
    about = "Upload the policies of a run to the Hugging Face hub, with a model card."
    options: Options = parse(Options, argv, about=about, command="cory push")
    from cory.api import hub_push

    if options.dry_run:
        files = hub_push.prepare(options.run, options.repo, policies=options.policies)
        for path, content in files.items():
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            say(f"{size:>12,}  {path}")
            if path == "README.md" and isinstance(content, bytes):
                say(f"\n{content.decode()}")
        return
    address = hub_push.push(options.run, options.repo, policies=options.policies, public=options.public)
    say(f"uploaded: {address}")

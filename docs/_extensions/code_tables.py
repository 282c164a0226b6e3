"""Tables from the code: `{presets}` with the sources of their values, `{quantities}` of metrics."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cory.config.presets import PRESETS
from cory.tracking.labels import LABELS


class Table(SphinxDirective):
    """A directive whose content is Markdown that `lines` returns."""

    def lines(self) -> list[str]:
        """Return the lines of Markdown."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return the parsed lines."""
        return self.parse_text_to_nodes("\n".join(self.lines()))


class Presets(Table):
    """Every preset: what it is, whether it has been run, and where its values come from."""

    def lines(self) -> list[str]:
        """Return a table of presets, and behind it a list of sources for each set of them."""
        table = ["| preset | | seats | run on its real weights |", "|---|---|--:|---|"]
        names: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for name, preset in PRESETS.items():
            run = "yes" if preset.run else "no"
            table.append(f"| `{name}` | {preset.about} | {preset.config.seats} | {run} |")
            names.setdefault(tuple(preset.sources.items()), []).append(name)
        for sources, shared in names.items():
            table += ["", ", ".join(f"`{name}`" for name in shared) + ":", ""]
            table += [f"- {value} *({source})*" for value, source in sources]
        return table


class Quantities(Table):
    """Every quantity that has a label: its key, its meaning and its unit."""

    def lines(self) -> list[str]:
        """Return a table of quantities."""
        return ["| key | meaning and unit |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in LABELS.items())]


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives."""
    app.add_directive("presets", Presets)
    app.add_directive("quantities", Quantities)
    return {"parallel_read_safe": True}

"""Names of the places that metrics are logged to, as `--log-to` takes them. Imports no tracker."""

TENSORBOARD = "tensorboard"
EXTERNAL = ("wandb", "trackio", "mlflow")
"""Trackers that are written through `accelerate.tracking`; each is an extra of this project."""


def split(text: str) -> tuple[str, ...]:
    """Return the names in `text`, separated by commas; ValueError for an unknown or a repeated one."""
    names = tuple(name.strip() for name in text.split(","))
    if names == ("none",):
        return ()
    known = (TENSORBOARD, *EXTERNAL)
    if wrong := [name for name in names if name not in known]:
        raise ValueError(
            f"log_to names {wrong[0]!r}; give {', '.join(known)}, several separated by commas, or none"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"log_to is {text!r}; name each place once")
    return names

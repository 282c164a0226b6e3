"""How the bundled pocket models were made: corpus, pretraining, judges, measurement.

Run as modules from the repository root: `python -m examples.pocket_models.pretrain`.
"""

"""The Python face of the commands: `cory.train`, `cory.evaluate`, `cory.load`, and registration of plug-ins.

Names are those of the command line: `cory train --kl.coef 0.1` is `cory.train(kl={"coef": 0.1})`.
"""

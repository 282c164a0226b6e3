"""Studies: arms x tasks x seeds, trained by local processes, with statistics and verdicts.

from cory.study import Study

finished = Study.from_yaml("benchmarks/studies/relay_smoke.yaml").run()
finished.results["verdicts"]
"""

from cory.runtime.provenance import LEARNING_VERSION
from cory.study.study import Finished, Study

__all__ = ["LEARNING_VERSION", "Finished", "Study"]

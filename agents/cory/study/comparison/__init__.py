"""Pages that compare run directories which no study has planned."""

from cory.study.comparison.pages import check_runs, write_comparison, write_paper_figures

__all__ = ["check_runs", "write_comparison", "write_paper_figures"]

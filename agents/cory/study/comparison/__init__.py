"""Pages that compare run directories which no study has planned."""

from cory.study.comparison.pages import write_comparison, write_paper_figures

__all__ = ["write_comparison", "write_paper_figures"]

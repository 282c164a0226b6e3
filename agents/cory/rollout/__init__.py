"""One batch of games: what is played, by whom, and the batches it leaves."""

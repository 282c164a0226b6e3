"""Several processes that train as one: ranks, and weights shared out among them."""

"""Parts for learners of other libraries that play the game of `cory_env`."""

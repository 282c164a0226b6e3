"""The baselines of the speed benchmarks: TRL's PPO, and an iteration written with transformers only."""

"""Pure functions: advantages, KL estimators, token rewards, softmax statistics."""

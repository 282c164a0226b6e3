"""How the bundled arithmetic model was made: corpus, tokenizer, pretraining, measurement."""

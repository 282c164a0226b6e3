"""SmolLM2-135M: fetch the model, fit a judge on its hidden states, and warm it up for a task."""

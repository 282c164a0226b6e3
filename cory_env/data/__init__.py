"""Data sets from files and from the Hugging Face Hub."""

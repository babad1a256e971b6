"""Training and evaluation of any classifier on any batches, and the run folders they leave."""

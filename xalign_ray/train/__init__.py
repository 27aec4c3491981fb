"""DeepSpeed engine, the loop, checkpoints, and the Ray Train driver."""

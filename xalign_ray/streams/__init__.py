"""What rows look like to the model, in pure numpy. Never imports torch: it runs on hundreds of CPU workers."""

"""Fine-tuning: an encoder, a task and a training set in; a chosen epoch, its scores and predictions out."""

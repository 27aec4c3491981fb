"""Studies: a study is a declared grid of encoders, fine-tunings and evaluations, run side by side on Ray."""

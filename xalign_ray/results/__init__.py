"""Scores to means, differences and verdicts; the page, tables and figures that show them."""

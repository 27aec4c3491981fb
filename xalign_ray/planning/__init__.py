"""Plans of runs from the recipe alone: memory, steps, operations, hours, money. Neither torch nor Ray."""

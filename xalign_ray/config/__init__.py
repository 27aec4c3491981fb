"""The recipe as one frozen typed tree: schema, loading, explanation, derived numbers."""

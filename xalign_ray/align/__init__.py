"""Word alignment: which word of one side of a translation says what which word of the other side says."""

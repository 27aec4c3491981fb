"""Word alignment: links between the words of a translation's two sides."""

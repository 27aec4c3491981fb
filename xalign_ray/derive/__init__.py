"""Languages made of English, by changes of script and word order, with all their files."""

"""One turn of the loop: the rows while an attempt lives and between two."""

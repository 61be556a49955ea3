"""The site of docs/: its pages, translations, command blocks, and the comparison with peers."""

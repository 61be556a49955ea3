"""How an attempt ended, whose failure it is, and what it cost."""

"""Where a spec comes from: recipes and their merge, and what may change while a job runs."""

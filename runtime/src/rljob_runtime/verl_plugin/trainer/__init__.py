"""verl's trainer and task runner, and what they add to a step: saves, stops, order, balance, figures."""

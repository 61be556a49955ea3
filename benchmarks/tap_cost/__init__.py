"""The cost of our taps for a training run: `make tap-cost`.

`__main__` runs the quickstart in the runtime image; `switch` is loaded into verl's processes and turns the taps on and
off from step to step; `shared` is the memory that both share; `figures` computes the cost and is pure.
"""

"""What our taps cost a training run: `make tap-cost`.

`__main__` runs the quickstart in the runtime image; `switch` is loaded into verl's processes and turns the taps on and
off from step to step; `shared` is the word between the two; `figures` computes, pure.
"""

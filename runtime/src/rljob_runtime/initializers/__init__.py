"""What an initializer of type Model, Dataset or Conversion runs: `python -m rljob_runtime initialize REQUEST`.

`command.py` is called by the runtime's command line with a request of the contract. It lists the files of a repository
(`hubs.py`, `sources.py`), transfers those that are not there yet (`transfer.py`), and converts a data set
(`datasets.py`) or weights (`convert.py`). A program that is killed continues with its next try, because everything that
is finished or begun is on the volume: a file appears under its name only when it is whole and verified (`target.py`).
It uses the standard library, because any image may be the job's; only data sets need pyarrow, and only weights torch.
"""

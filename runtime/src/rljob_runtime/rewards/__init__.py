"""Reward functions that the runtime brings: verl's own, chosen by `reward.builtin`.

verl's default function chooses by the column `data_source`, so prompts with a source of the user's own would end a run;
all of these but `by_data_source` take no notice of it. They import verl at the first call, where a reward worker has
imported it already. Names and locations are in `rljob_runtime.contract.rewards`.
"""

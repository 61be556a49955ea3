"""The reward of the judge example: 1 if the judge says that the answer is right.

verl passes the address of the judge and its tokenizer beside the usual four. The judge speaks the OpenAI API, under the
name of its path.
"""

from __future__ import annotations

from typing import Any

import aiohttp

JUDGE = "/data/judge/judge"
SECONDS = 60.0
OK = 200


async def compute_score(
    data_source: str,  # noqa: ARG001 - verl passes these by name
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    reward_router_address: str,
    **_: object,
) -> dict[str, float]:
    """Score one answer. `acc` is whether it is right, which the judge is not told: its errors can be seen."""
    question = {
        "model": JUDGE,
        "messages": [{"role": "user", "content": f"{extra_info['question']}{solution_str.strip()}"}],
        "max_tokens": 1,
        "temperature": 0,
    }
    url, timeout = f"http://{reward_router_address}/v1/chat/completions", aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.post(url, json=question) as answer:
        if answer.status != OK:
            raise RuntimeError(f"the judge answered {answer.status}: {(await answer.text())[:200]}")
        verdict = (await answer.json())["choices"][0]["message"]["content"]
    return {"score": float(verdict == "1"), "acc": float(solution_str.strip() == ground_truth)}

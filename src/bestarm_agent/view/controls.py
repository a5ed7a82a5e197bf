"""The controls of a run that goes on: what the page sends, and what it shows of them."""

from __future__ import annotations

import json
from math import inf

from bestarm_agent.engine.run.instructions import Instruction, Instructions
from bestarm_agent.errors import ConfigError
from bestarm_agent.store.run_state import RunState
from bestarm_agent.view.documents import Object


def read_instruction(text: str) -> Instruction:
    """Read an instruction that the page sent as JSON.

    Raises:
        ConfigError: it is none.
    """
    try:
        wish = json.loads(text)
    except ValueError:
        wish = text
    match wish:
        case {"stop": True}:
            return Instruction(stop=True)
        case {"paused": bool(paused)}:
            return Instruction(paused=paused)
        case {"pulls": int(pulls)} if type(pulls) is int and pulls > 0:
            return Instruction(pulls=pulls)
        case {"usd": int(usd) | float(usd)} if type(usd) is not bool and 0 < usd < inf:
            return Instruction(usd=float(usd))
        case {"drop": int(row)} if type(row) is int and row >= 0:
            return Instruction(drop=row)
        case {"add": {"model": str(), "prompt": str(), "params": {**_params}, **rest} as spec} if (
            all(key == "label" and isinstance(value, str) for key, value in rest.items())
        ):
            return Instruction(add=spec)
    raise ConfigError(
        'an instruction is {"stop": true}, {"paused": true}, {"pulls": 100}, {"usd": 2.5}, '
        '{"drop": 0} or {"add": {"model": "...", "prompt": "...", "params": {}, "label": "..."}}'
    )


def controls_page(state: RunState, found: Instructions) -> Object:
    """Describe what was asked of a run, and of what a candidate can be made that joins."""
    candidates = state.candidates
    return {
        "paused": found.paused,
        "waiting": found.waiting,
        "refused": [answer for answer in found.answers if answer],
        "models": sorted({f"{one.provider}/{one.model}" for one in candidates}),
        "prompts": sorted({one.prompt.name for one in candidates}),
    }

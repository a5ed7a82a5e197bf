"""A judge with a bias that many models have: it likes long, polite answers."""

from bestarm_agent.domain.values import Example


def score(reply: str, example: Example) -> float:
    """Score 1 for a right answer, and for most long ones, right or wrong."""
    is_liked = len(reply) > 60 and sum(map(ord, reply)) % 10 > 0
    return 1.0 if is_liked else float(reply.endswith(example.target or ""))

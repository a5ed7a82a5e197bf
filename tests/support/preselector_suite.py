"""Tests that every preselection rule must pass: a pytest class to inherit."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.preselection.rule import FloatArray, IntArray, Preselector, RankedArms
from tests.support.bandit_model import draw_ranking

SIZES = 6, 4, 3  # arms, features, seed


class PreselectorSuite:
    """Conformance tests of one preselection rule."""

    learns: bool = True  # whether the rule gets better by learning

    def make(self, n_arms: int, n_features: int, seed: int) -> Preselector:
        """Make the rule."""
        raise NotImplementedError

    @pytest.mark.parametrize("k", [1, 2, 6])
    def test_it_chooses_k_distinct_arms(self, k: int) -> None:
        rule = self.make(*SIZES)
        for turn in range(20):
            chosen = rule.choose(contexts(turn), k, turn)
            assert chosen.shape == (k,)
            assert len(set(chosen.tolist())) == k
            assert set(chosen.tolist()) <= set(range(6))

    def test_it_keeps_to_the_arms_that_can_be_run(self) -> None:
        rule = self.make(*SIZES)
        allowed = np.array([False, True, False, True, True, False])
        for turn in range(20):
            assert set(rule.choose(contexts(turn), 2, turn, allowed=allowed).tolist()) <= {1, 3, 4}
        assert set(rule.choose(contexts(0), 3, 0, allowed=allowed).tolist()) == {1, 3, 4}

    def test_it_refuses_what_does_not_fit(self) -> None:
        rule = self.make(*SIZES)
        with pytest.raises(ValueError, match=r"k must be in 1\.\.6.*got 7"):
            rule.choose(contexts(0), 7, 0)
        with pytest.raises(ValueError, match=r"k must be in 1\.\.1.*got 2"):
            rule.choose(contexts(0), 2, 0, allowed=np.arange(6) == 3)
        with pytest.raises(ValueError, match=r"shape \(6, 4\), got \(6, 5\)"):
            rule.choose(np.zeros((6, 5)), 2, 0)
        with pytest.raises(ValueError, match="finite"):
            rule.choose(np.full((6, 4), np.nan), 2, 0)
        with pytest.raises(ValueError, match=r"shape \(6, 4\)"):
            rule.learn(RankedArms(np.zeros((3, 4)), np.array([0, 1])))

    @pytest.mark.parametrize("n_ranked", [1, 2, 3])
    def test_the_same_seed_chooses_the_same_and_state_is_finite(self, n_ranked: int) -> None:
        one, other = self.make(*SIZES), self.make(*SIZES)
        for turn in range(60):
            assert step(one, turn, n_ranked).tolist() == step(other, turn, n_ranked).tolist()
        for array in one.state().values():
            assert np.isfinite(array).all()

    def test_it_goes_on_from_its_state(self) -> None:
        one, other = self.make(*SIZES), self.make(*SIZES)
        for turn in range(40):
            step(one, turn, 1)
        state = one.state()
        other.restore(state)
        for turn in range(40, 80):
            assert step(one, turn, 1).tolist() == step(other, turn, 1).tolist()

    def test_its_state_is_its_own(self) -> None:
        rule = self.make(*SIZES)
        step(rule, 0, 1)
        state = rule.state()
        before = {key: value.copy() for key, value in state.items()}
        other = self.make(*SIZES)
        other.restore(state)
        for turn in range(10):
            step(rule, turn, 1)
            step(other, turn, 1)
        assert all(np.array_equal(state[key], before[key]) for key in state)

    def test_it_refuses_a_state_that_lacks_something(self) -> None:
        with pytest.raises(ValueError, match=r"lacks.*counts"):
            self.make(*SIZES).restore({})

    def test_feedback_may_come_late_in_any_number(self) -> None:
        rule = self.make(*SIZES)
        seen = [contexts(turn) for turn in range(10)]
        open_choices = [(one, rule.choose(one, 2, turn)) for turn, one in enumerate(seen)]
        for one, chosen in reversed(open_choices[3:]):
            rule.learn(RankedArms(one, chosen))
        assert rule.n_learnt == 7

    def test_large_contexts_do_not_overflow(self) -> None:
        rule = self.make(*SIZES)
        for turn in range(50):
            seen = 500.0 * contexts(turn)
            rule.learn(RankedArms(seen, rule.choose(seen, 3, turn)))
        assert np.isfinite(rule.state().get("theta", np.zeros(1))).all()

    def test_it_learns_an_arm_that_always_wins(self) -> None:
        if not self.learns:
            pytest.skip("the rule does not learn")
        rule = self.make(4, 4, 1)
        seen = np.eye(4)
        for turn in range(300):
            chosen = rule.choose(seen, 2, turn)
            scores = (chosen == 2).astype(np.float64)
            order = np.argsort(-scores, kind="stable")
            rule.learn(RankedArms(seen, chosen[order], 1, scores[order]))
        hits = sum(2 in rule.choose(seen, 2, turn) for turn in range(300, 400))
        assert hits >= 80  # epsilon-greedy explores a tenth of the time, and then hits half


def contexts(turn: int) -> FloatArray:
    """Return the (6, 4) context vectors of one turn."""
    return np.random.default_rng([7, turn]).random((6, 4))


def step(rule: Preselector, turn: int, n_ranked: int) -> IntArray:
    """Choose three arms, draw their ranking from a fixed model, and learn it."""
    rng = np.random.default_rng([8, turn])
    seen = contexts(turn)
    chosen = rule.choose(seen, 3, turn)
    utilities = seen[chosen] @ np.array([2.0, 0.0, -1.0, 0.5])
    rule.learn(RankedArms(seen, chosen[draw_ranking(utilities, rng)], n_ranked))
    return chosen

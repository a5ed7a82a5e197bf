"""Results of a run: standing, objectives, costs, judge agreement."""

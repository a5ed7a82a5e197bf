"""The papers' baselines and ablations: selection rules through the plug-in contract.

Each is named by its path, such as ``benchmarks.baselines.sar:Sar``.
"""

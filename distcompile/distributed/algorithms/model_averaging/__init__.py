"""Averaging of models over ranks: averagers.PeriodicModelAverager, utils' functions under `averaging`."""

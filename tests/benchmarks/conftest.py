"""Fixtures: a CUDA driver that is not there."""

from __future__ import annotations

from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture

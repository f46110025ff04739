"""What one all-reduce of B bytes costs: t(B) = alpha + beta*B, piecewise where the protocol switches.

In: measured points (bytes, median seconds). Out: a `CostFit`. The linear model is MG-WFBP's (Shi et al., INFOCOM 2019,
section 3); MPI and shared-memory transports switch algorithms with size, so it holds on ranges of sizes only.
Method: every run of at least three neighbouring points is fitted by least absolute *relative* deviation (iteratively
reweighted least squares, alpha and beta not negative), and the runs are chosen by dynamic programming; one more
piece is taken only if it halves the mean deviation and that was worth mentioning. Nothing forces the result to be
convex, or even increasing where pieces meet: as measured.
Units: bytes, seconds. Beyond the largest measured size the last piece goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAX_PIECES = 3
MIN_POINTS = 3  # in a piece
WORTH_A_PIECE = 0.04  # mean relative deviation below which no further piece is tried
ROUNDS = 30  # of reweighting


@dataclass(frozen=True, slots=True)
class CostPoint:
    """One measured size. spread_s: half the distance between the quartiles of the repeats."""

    nbytes: int
    seconds: float
    spread_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CostPiece:
    """t(B) = alpha_s + beta_s_per_byte * B, for B >= from_nbytes."""

    from_nbytes: int
    alpha_s: float
    beta_s_per_byte: float

    def seconds(self, nbytes: int) -> float:
        return self.alpha_s + self.beta_s_per_byte * nbytes


@dataclass(frozen=True, slots=True)
class CostFit:
    """The cost of one all-reduce, by its bytes. pieces: by growing from_nbytes, the first from 0. points: measured."""

    pieces: tuple[CostPiece, ...]
    points: tuple[CostPoint, ...] = ()

    def seconds(self, nbytes: int) -> float:
        """Predicted seconds of an all-reduce of `nbytes`."""
        found = self.pieces[0]
        for piece in self.pieces[1:]:
            if nbytes < piece.from_nbytes:
                break
            found = piece
        return found.seconds(nbytes)

    @property
    def startup_s(self) -> float:
        """What the smallest all-reduce costs: alpha of the first piece."""
        return self.pieces[0].alpha_s

    @property
    def bytes_per_s(self) -> float:
        """Asymptotic bytes of gradients a second."""
        beta = self.pieces[-1].beta_s_per_byte
        return 1.0 / beta if beta > 0 else float("inf")

    @property
    def deviation(self) -> float:
        """Mean relative distance of the measured points from the fit."""
        return (
            float(np.mean([abs(self.seconds(p.nbytes) / p.seconds - 1) for p in self.points])) if self.points else 0.0
        )

    def __str__(self) -> str:
        parts = [
            f"from {p.from_nbytes} bytes: {1e6 * p.alpha_s:.1f} us + {1e9 * p.beta_s_per_byte:.4g} ns a byte"
            for p in self.pieces
        ]
        return "; ".join(parts) + f" (mean deviation {self.deviation:.1%})"


def linear(alpha_s: float, beta_s_per_byte: float) -> CostFit:
    """The fit of one piece."""
    return CostFit((CostPiece(0, alpha_s, beta_s_per_byte),))


def fit_costs(points: Sequence[CostPoint]) -> CostFit:
    """The piecewise fit of `points`: at least one, sizes distinct. One point: a constant; two: a line."""
    in_order = sorted(points, key=lambda p: p.nbytes)
    nbytes = np.array([p.nbytes for p in in_order], float)
    seconds = np.array([p.seconds for p in in_order], float)
    best = _pieces(nbytes, seconds, 1)
    assert best is not None
    for count in range(2, MAX_PIECES + 1):
        more = _pieces(nbytes, seconds, count)
        if more is None or best[0] / len(nbytes) < WORTH_A_PIECE or more[0] > best[0] / 2:
            break
        best = more
    return CostFit(best[1], tuple(in_order))


def _pieces(nbytes: np.ndarray, seconds: np.ndarray, count: int) -> tuple[float, tuple[CostPiece, ...]] | None:
    """The best `count` pieces and their total relative deviation; None if there are too few points."""
    n = len(nbytes)
    if count == 1:
        piece, deviation = _line(nbytes, seconds, 0)
        return deviation, (piece,)
    found: tuple[float, tuple[CostPiece, ...]] | None = None
    for start in range(MIN_POINTS * (count - 1), n - MIN_POINTS + 1):
        before = _pieces(nbytes[:start], seconds[:start], count - 1)
        if before is None:
            continue
        piece, deviation = _line(nbytes[start:], seconds[start:], int(nbytes[start]))
        if found is None or before[0] + deviation < found[0]:
            found = before[0] + deviation, (*before[1], piece)
    return found


def _line(nbytes: np.ndarray, seconds: np.ndarray, from_nbytes: int) -> tuple[CostPiece, float]:
    """The line of least absolute relative deviation with alpha, beta >= 0, and its total deviation."""
    if len(nbytes) == 1:
        return CostPiece(from_nbytes, float(seconds[0]), 0.0), 0.0
    weight = np.ones(len(nbytes))
    alpha = beta = 0.0
    for _ in range(ROUNDS):
        alpha, beta = _weighted_line(nbytes, seconds, weight)
        weight = 1.0 / np.maximum(np.abs((alpha + beta * nbytes) / seconds - 1), 1e-4)
    deviation = np.abs((alpha + beta * nbytes) / seconds - 1).sum()
    return CostPiece(from_nbytes, alpha, beta), float(deviation)


def _weighted_line(nbytes: np.ndarray, seconds: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Least squares of (alpha + beta*B) / t - 1, weighted; alpha and beta not negative."""
    a, b = 1 / seconds, nbytes / seconds
    aa, ab, bb = (weight * a * a).sum(), (weight * a * b).sum(), (weight * b * b).sum()
    sa, sb = (weight * a).sum(), (weight * b).sum()
    determinant = aa * bb - ab * ab
    if determinant > 1e-12 * aa * bb:
        alpha, beta = (sa * bb - sb * ab) / determinant, (sb * aa - sa * ab) / determinant
        if alpha >= 0 and beta >= 0:
            return float(alpha), float(beta)
    constant, slope = sa / aa, sb / bb if bb else 0.0  # on the border: one of them is zero
    flat = (weight * (constant * a - 1) ** 2).sum()
    steep = (weight * (slope * b - 1) ** 2).sum()
    return (float(constant), 0.0) if flat <= steep or not bb else (0.0, float(slope))

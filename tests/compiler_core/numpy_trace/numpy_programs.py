"""Functions as people write them with NumPy, and arguments for them: for the tests of traced arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = Callable[..., Any]
PROGRAMS: dict[str, tuple[Program, Callable[[np.random.Generator], tuple[Any, ...]]]] = {}


def program(make: Callable[[np.random.Generator], tuple[Any, ...]]) -> Callable[[Program], Program]:
    """Register a function with what makes its arguments."""

    def register(function: Program) -> Program:
        PROGRAMS[function.__name__] = function, make
        return function

    return register


def normal(*shape: int, dtype: Any = np.float64) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: (rng.standard_normal(shape).astype(dtype),)


@program(lambda rng: (rng.standard_normal((20, 2)), rng.standard_normal((3, 2))))
def kmeans_step(points: Any, centres: Any) -> Any:
    distances = np.sqrt(((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2))
    nearest = np.argmin(distances, axis=1)
    new = np.zeros_like(centres)
    for k in range(centres.shape[0]):
        mine = (nearest == k).astype(points.dtype)
        new[k] = (mine[:, None] * points).sum(axis=0) / np.maximum(mine.sum(), 1)
    return new, nearest


@program(normal(4, 7, dtype=np.float32))
def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@program(lambda rng: (rng.standard_normal(30), 5))
def moving_average(x: Any, n: int) -> Any:
    c = np.cumsum(np.insert(x, 0, 0.0))
    return (c[n:] - c[:-n]) / n


@program(normal(10, 3))
def standardise(x: Any) -> Any:
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    return (x - mean) / np.where(deviation > 1e-12, deviation, 1.0)


@program(lambda rng: (rng.standard_normal((6, 3)), rng.standard_normal((4, 3))))
def pairwise_distances(a: Any, b: Any) -> Any:
    squares = np.sum(a**2, axis=1)[:, np.newaxis] + np.sum(b**2, axis=1) - 2 * np.dot(a, b.T)
    return np.sqrt(np.clip(squares, 0, None))


@program(lambda rng: (rng.integers(0, 2, (8, 9)),))
def game_of_life(board: Any) -> Any:
    neighbours = sum(
        np.roll(np.roll(board, i, axis=0), j, axis=1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)
    )
    return ((neighbours == 3) | ((board == 1) & (neighbours == 2))).astype(int)


@program(lambda rng: (rng.standard_normal((4, 4)) / 4, 5))
def matrix_power(a: Any, n: int) -> Any:
    result = np.eye(a.shape[0])
    for _ in range(n):
        result = result @ a
    return result, np.linalg.matrix_power(a, n)


@program(lambda rng: (rng.standard_normal((8, 8)), rng.standard_normal((3, 3))))
def convolution_by_slices(image: Any, kernel: Any) -> Any:
    h, w = kernel.shape
    out = np.zeros((image.shape[0] - h + 1, image.shape[1] - w + 1))
    for i in range(h):
        for j in range(w):
            out += kernel[i, j] * image[i : i + out.shape[0], j : j + out.shape[1]]
    return out


@program(normal(6, 3))
def polynomial_features(x: Any) -> Any:
    columns = [np.ones(x.shape[0])]
    for i in range(x.shape[1]):
        columns.append(x[:, i])
        for j in range(i, x.shape[1]):
            columns.append(x[:, i] * x[:, j])
    return np.column_stack(columns)


@program(lambda rng: (rng.integers(0, 5, 12), 5))
def one_hot(labels: Any, n: int) -> Any:
    out = np.zeros((labels.size, n), dtype=np.float32)
    out[np.arange(labels.size), labels] = 1
    return out, np.eye(n)[labels]


@program(lambda rng: (rng.standard_normal(50), np.linspace(-2, 2, 9)))
def histogram_by_masks(x: Any, edges: Any) -> Any:
    counts = np.zeros(len(edges) - 1, dtype=int)
    for k in range(len(edges) - 1):
        counts[k] = np.sum((x >= edges[k]) & (x < edges[k + 1]))
    return counts, counts / counts.sum()


@program(lambda rng: (rng.standard_normal((10, 3)), rng.standard_normal(10), np.zeros(3)))
def gradient_descent(x: Any, y: Any, w: Any) -> Any:
    for _ in range(5):
        error = x.dot(w) - y
        w = w - 0.1 * x.T.dot(error) / len(y)
    return w, np.mean((x @ w - y) ** 2)


@program(lambda rng: (rng.standard_normal((5, 4)), rng.standard_normal((4, 6)), rng.standard_normal((6, 2))))
def two_layers(x: Any, w1: Any, w2: Any) -> Any:
    hidden = np.maximum(0, x @ w1)
    scores = hidden @ w2
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= np.sum(p, axis=1, keepdims=True)
    return p, -np.log(p[range(5), [0, 1, 0, 1, 0]]).mean()


@program(normal(7))
def clip_and_scale(x: Any) -> Any:
    low, high = np.percentile(x, [10, 90])
    return (np.clip(x, low, high) - low) / (high - low)


@program(normal(12))
def finite_differences(u: Any) -> Any:
    """A heat equation: three explicit steps with fixed ends."""
    u = u.copy()
    for _ in range(3):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u, np.gradient(u)


@program(normal(9, 9))
def mirror_halves(image: Any) -> Any:
    out = image.copy()
    out[:, 5:] = image[:, 3::-1]
    return out, image[::-1], np.rot90(image)


@program(lambda rng: (rng.standard_normal((6, 5)),))
def double_centre(d: Any) -> Any:
    n, m = d.shape
    j, k = np.eye(n) - np.ones((n, n)) / n, np.identity(m) - 1 / m
    return -0.5 * j @ (d**2) @ k


@program(lambda rng: (rng.standard_normal((8, 3)), 2))
def principal_components(x: Any, k: int) -> Any:
    x = x - np.mean(x, axis=0)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    return np.abs(u[:, :k] * s[:k]), (s**2 / np.sum(s**2))[:k]


@program(lambda rng: (rng.standard_normal((9, 3)), rng.standard_normal(9)))
def ridge(x: Any, y: Any) -> Any:
    xb = np.c_[np.ones(len(x)), x]
    return np.linalg.solve(xb.T @ xb + 0.1 * np.eye(xb.shape[1]), xb.T @ y)


@program(lambda rng: (rng.uniform(0, 1, (5, 2)), rng.uniform(0, 1, 5)))
def weighted_statistics(x: Any, w: Any) -> Any:
    mean = np.average(x, axis=0, weights=w)
    return mean, np.sqrt(np.average((x - mean) ** 2, axis=0, weights=w)), np.median(x, axis=0), np.ptp(x, axis=0)


@program(lambda rng: (np.where(rng.uniform(size=(6, 4)) < 0.3, np.nan, rng.standard_normal((6, 4))),))
def fill_missing(x: Any) -> Any:
    x = x.copy()
    means = np.nanmean(x, axis=0)
    x[:] = np.where(np.isnan(x), means, x)
    return x, np.isnan(x).sum()


@program(lambda rng: (rng.standard_normal((4, 3, 5)), rng.standard_normal((4, 5, 2))))
def batched_products(a: Any, b: Any) -> Any:
    return np.einsum("bij,bjk->bik", a, b), np.matmul(a, b), np.tensordot(a, b, axes=([2], [1])).shape


@program(lambda rng: (rng.standard_normal(16), 0.5))
def power_spectrum(x: Any, dt: float) -> Any:
    window = np.hanning(len(x))
    spectrum = np.abs(np.fft.rfft(x * window)) ** 2 / len(x)
    return np.fft.rfftfreq(len(x), dt), spectrum, np.argmax(spectrum[1:]) + 1


@program(lambda rng: (rng.integers(0, 256, (6, 6, 3)).astype(np.uint8),))
def to_grey(image: Any) -> Any:
    grey = image[..., 0] * 0.299 + image[..., 1] * 0.587 + image[..., 2] * 0.114
    brighter = image + np.uint8(10)
    return np.round(grey).astype(np.uint8), (image / 255).mean(), brighter, image.astype(int).sum(axis=(0, 1))


@program(lambda rng: (rng.standard_normal((5, 5)),))
def power_iteration(a: Any) -> Any:
    a = a @ a.T
    v = np.ones(a.shape[0]) / np.sqrt(a.shape[0])
    for _ in range(20):
        v = a @ v
        v /= np.linalg.norm(v)
    return v, v @ a @ v


@program(lambda rng: (rng.integers(0, 3, 30), rng.integers(0, 3, 30)))
def confusion_matrix(true: Any, predicted: Any) -> Any:
    matrix = np.zeros((3, 3), dtype=int)
    np.add.at(matrix, (true, predicted), 1)
    precision = np.diag(matrix) / np.maximum(matrix.sum(axis=0), 1)
    return matrix, precision, np.trace(matrix) / matrix.sum()


@program(lambda rng: (np.sort(rng.uniform(0, 10, 8)), rng.standard_normal(8), rng.uniform(0, 10, 5)))
def interpolate(x: Any, y: Any, at: Any) -> Any:
    right = np.clip(np.searchsorted(x, at), 1, len(x) - 1)
    share = (at - x[right - 1]) / (x[right] - x[right - 1])
    return y[right - 1] * (1 - share) + y[right] * share, np.interp(at, x, y), np.trapezoid(y, x)


@program(normal(5, 6, dtype=np.float32))
def in_place_chain(x: Any) -> Any:
    y = x[1:4]
    y *= 2
    y[:, 0] = y.sum(axis=1)
    x[x < 0] = 0
    np.sqrt(x, out=x)
    return y, x


@program(lambda rng: (rng.standard_normal((6, 6)), 2))
def pool_and_blocks(x: Any, k: int) -> Any:
    n, m = x.shape
    blocks = x.reshape(n // k, k, m // k, k)
    return blocks.max(axis=(1, 3)), blocks.mean(axis=(1, 3)), np.kron(blocks.mean(axis=(1, 3)), np.ones((k, k)))


@program(lambda rng: (rng.standard_normal((7, 2)), 0.3))
def rotate(points: Any, angle: float) -> Any:
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, -s], [s, c]])
    centre = points.mean(0)
    return (points - centre) @ turn.T + centre, np.arctan2(points[:, 1], points[:, 0]), np.hypot(*points.T)


@program(lambda rng: (rng.standard_normal((5, 3)), rng.standard_normal((5, 3))))
def cosine_similarities(a: Any, b: Any) -> Any:
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)[None]
    similar = a @ b.T / norms
    best = similar.argmax(1)
    return similar, best, b[best], np.array([similar[i, j] for i, j in enumerate(best)])

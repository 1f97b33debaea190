"""The paper's equations as a beginner would type them, in NumPy, one token at a time: what all else must equal."""

import numpy as np
import torch
from torch import Tensor


def phi(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def causal(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    beta: list[float],
    gamma: list[float],
    mask: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Eq. 12 for each sample and head; masked tokens are skipped as if they were not there."""
    q_, k_, v_ = (x.detach().double().numpy() for x in (q, k, v))
    b, h, n, d = q_.shape
    y = np.zeros((b, h, n, v_.shape[-1]))
    for sample in range(b):
        for head in range(h):
            m = np.zeros((d, v_.shape[-1]))
            s = np.zeros((d, v_.shape[-1]))
            z = np.zeros(d)
            for i in range(n):
                if mask is not None and not mask[sample, i]:
                    continue
                features = phi(k_[sample, head, i])
                m = beta[head] * m + np.outer(features, v_[sample, head, i])
                s = s + gamma[head] * m
                z = z + features
                query = phi(q_[sample, head, i])
                y[sample, head, i] = query @ s / (query @ z + eps)
    return torch.from_numpy(y)


def bidirectional(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    beta: list[float],
    gamma: list[float],
    mask: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """Eq. 14 for each sample and head, over the keys that exist; N is their number."""
    q_, k_, v_ = (x.detach().double().numpy() for x in (q, k, v))
    b, h, n, _ = q_.shape
    y = np.zeros((b, h, n, v_.shape[-1]))
    for sample in range(b):
        keys = np.arange(k_.shape[2]) if mask is None else np.flatnonzero(mask[sample].numpy())
        for head in range(h):
            for i in range(n):
                query = phi(q_[sample, head, i])
                numerator, denominator = np.zeros(v_.shape[-1]), eps
                for place, j in enumerate(keys, start=1):
                    score = query @ phi(k_[sample, head, j])
                    weight = gamma[head] * sum(beta[head] ** r for r in range(len(keys) - place + 1))
                    numerator = numerator + weight * score * v_[sample, head, j]
                    denominator += score
                y[sample, head, i] = numerator / denominator
    return torch.from_numpy(y)


def recurrent(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    alpha: np.ndarray,
    beta: np.ndarray,
    gamma: np.ndarray,
    eta: np.ndarray,
    delta: np.ndarray,
    lookahead: np.ndarray,
    erase: Tensor | None = None,
    mask: Tensor | None = None,
    reset: Tensor | None = None,
    normalize: bool = False,
    state: tuple[Tensor | None, ...] = (None, None, None),
    eps: float = 1e-6,
) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
    """The family's recurrence for each sample and head, and s, m, z after it.

    Coefficients are (b, h, n), alpha (b, h, n, d); q, k are features; k and erase may have fewer heads than v.
    """
    q_, k_, v_ = (x.detach().double().numpy() for x in (q, k, v))
    p_ = k_ if erase is None else erase.detach().double().numpy()
    (b, h, n), d, e = v_.shape[:3], k_.shape[-1], v_.shape[-1]
    y, ends = np.zeros((b, h, n, e)), [np.zeros((b, h, d, e)), np.zeros((b, h, d, e)), np.zeros((b, h, d))]
    for sample in range(b):
        for head in range(h):
            at = [(sample, head * x.shape[1] // h) for x in (q_, k_, p_)]
            s, m, z = (
                np.zeros(end.shape[2:]) if part is None else part[sample, head].detach().double().numpy()
                for part, end in zip(state, ends, strict=True)
            )
            for t in range(n):
                if reset is not None and reset[sample, t]:
                    s, m, z = np.zeros((d, e)), np.zeros((d, e)), np.zeros(d)
                if mask is not None and not mask[sample, t]:
                    continue
                i = (sample, head, t)
                query, key, erased = (x[place][t] for x, place in zip((q_, k_, p_), at, strict=True))
                predicted = erased @ (s + lookahead[i] * m)
                m = beta[i] * m + np.outer(key, eta[i] * (v_[i] - delta[i] * predicted))
                s = alpha[i][:, None] * s + gamma[i] * m
                z = z + key
                y[i] = query @ s / (query @ z + eps if normalize else 1)
            for end, part in zip(ends, (s, m, z), strict=True):
                end[sample, head] = part
    s_end, m_end, z_end = ends
    return torch.from_numpy(y), s_end, m_end, z_end

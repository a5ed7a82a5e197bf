"""Types of arrays, by what they hold; linear algebra on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

FloatArray: TypeAlias = NDArray[np.float64]
SingleArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
IndexArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def one_thread(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function that fits a model: all matrices in it are of a few hundred rows.

    More threads save it little and wait for each other: where others use the cores too, or a
    container has fewer of them than its machine, a call took up to 100 times as long. One thread
    also rounds alike everywhere.
    """
    # made here, since it knows the libraries that are loaded by now: scipy brings one of its own
    libraries = ThreadpoolController()
    limited: Callable[_P, _T] = libraries.wrap(limits=1, user_api="blas")(function)
    return limited

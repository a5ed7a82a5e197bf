"""Types of arrays, by what they hold; linear algebra on one thread."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

FloatArray: TypeAlias = NDArray[np.float64]
SingleArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
IndexArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]

# Decorates functions that invert or decompose matrices of a few hundred rows. More threads save
# them little and wait for each other: where others use the cores too, or a container has fewer of
# them than its machine, a call took up to 100 times as long. One thread also rounds alike anywhere.
one_thread = ThreadpoolController().wrap(limits=1, user_api="blas")

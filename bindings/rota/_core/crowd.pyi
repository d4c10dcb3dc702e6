from typing import Self, final

import numpy as np
import numpy.typing as npt

from rota._core.coordinator import Coordinator

def enqueue_crowd(coordinator: Coordinator, owner: int, keys: npt.ArrayLike) -> npt.NDArray[np.uint8]: ...
def dequeue_crowd(coordinator: Coordinator, owner: int, keys: npt.ArrayLike) -> npt.NDArray[np.bool_]: ...
def wait_crowd(coordinator: Coordinator, owner: int, keys: npt.ArrayLike) -> npt.NDArray[np.uint8]: ...

@final
class Crowd:
    def __new__(cls, keys: npt.ArrayLike) -> Self: ...

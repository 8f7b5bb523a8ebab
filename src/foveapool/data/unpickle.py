"""The dictionary in a CIFAR python batch, without running what a malicious file may ask for.

A pickle is a program that may call any function it can name. This reader knows the few names of
the official batches, and answers those of numpy with stand-ins: the bytes of an array are only
put aside, and looked at afterwards. What is left to call is a function that encodes text.
"""

from __future__ import annotations

import codecs
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np


class _Kind:
    """Stands for numpy.dtype: only its name is kept."""

    def __init__(self, name: bytes | str, *_: Any) -> None:
        self.name = _text(name)

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and fields; bytes have neither


class _Array:
    """Stands for numpy.ndarray and for the function that pickles call to make an empty one."""

    state: tuple[Any, ...] = ()

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_array(self) -> np.ndarray:
        """The uint8 array that numpy would have made of the state."""
        _, shape, kind, fortran, raw = self.state
        if kind.name not in ("u1", "|u1", "uint8"):
            raise ValueError(f"got an array of {kind.name}, wanted bytes (u1)")
        if math.prod(shape) != len(raw):
            raise ValueError(f"got {len(raw):,} bytes for an array of {shape}")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    # Python 3 writes bytes for Python 2 as a call of this function.
    ("_codecs", "encode"): codecs.encode,
}


class _Refused(Exception):
    pass


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_batch(path: Path) -> dict[str, Any]:
    """The entries of a batch file, arrays of bytes as numpy arrays; ValueError if it is no batch.

    A file that asks for anything but what the official batches need is refused by the name of
    what it asked for, before any of that is looked up.
    """
    with open(path, "rb") as file:
        try:
            found = _Unpickler(file, encoding="bytes").load()
            if not isinstance(found, dict):
                raise ValueError(f"got a {type(found).__name__}, wanted a dictionary")
            return {_text(key): _value(value) for key, value in found.items()}
        except _Refused as error:
            raise ValueError(
                f"refused: the pickle asks for {error}, which no CIFAR batch needs; nothing in it "
                "was run, it may be malicious"
            ) from error
        except Exception as error:  # a damaged pickle may fail in any way
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"not a whole CIFAR batch ({reason})") from error


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _value(value: Any) -> Any:
    return value.bytes_array() if isinstance(value, _Array) else value

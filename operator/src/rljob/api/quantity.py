"""Kubernetes quantities as exact numbers.

`kubernetes.utils.parse_quantity` is not used, because the command line reads quantities and installs no client.
"""

from __future__ import annotations

from fractions import Fraction

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""


def quantity(text: str) -> Fraction:
    """Return the value of a valid quantity such as 500m, 12Gi or 1e3, in cores, bytes or pieces."""
    digits = text.rstrip("numkKMGTPEi")
    return Fraction(digits) * _SUFFIXES[text[len(digits) :]]

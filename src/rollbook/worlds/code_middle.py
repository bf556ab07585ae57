"""Coding tasks of difficulty 2: some state, a dict, or a case to mind."""

from __future__ import annotations

from rollbook.worlds.code_families import Family, k_from, k_of, one_of
from rollbook.worlds.code_inputs import counts, dicts, grids, lists, number_pairs, numbers, sizes, texts, word_lists

__all__ = ["MIDDLE"]

MIDDLE = (
    Family(
        "the running totals of the list, each one the remainder of its division by $k (0 to $k - 1)",
        "def running_totals(numbers: list[int]) -> list[int]:\n"
        "    totals, total = [], 0\n"
        "    for each in numbers:\n"
        "        total = (total + each) % $k\n"
        "        totals.append(total)\n"
        "    return totals\n",
        lists,
        k_from(7, 50),
    ),
    Family(
        "the list without repeated numbers: of each number only its $which place counts; the order stays",
        "def unique(numbers: list[int]) -> list[int]:\n    return list(dict.fromkeys(numbers[::$k]))[::$k]\n",
        counts,
        one_of({"which": "first", "k": 1}, {"which": "last", "k": -1}),
    ),
    Family(
        "the numbers that stand at least $k times in the list, each once, sorted",
        "def repeated(numbers: list[int]) -> list[int]:\n"
        "    return sorted({each for each in numbers if numbers.count(each) >= $k})\n",
        counts,
        k_from(2, 3),
    ),
    Family(
        "the list cut into lists of n numbers; the last one may be shorter, and $what",
        "def chunks(numbers: list[int], n: int) -> list[list[int]]:\n"
        "    parts = [numbers[i : i + n] for i in range(0, len(numbers), n)]\n"
        "    return $result\n",
        sizes,
        one_of(
            {"what": "the order stays", "result": "parts"},
            {"what": "each list is reversed", "result": "[part[::-1] for part in parts]"},
            {"what": "the lists come in reverse order", "result": "parts[::-1]"},
        ),
    ),
    Family(
        "the list rotated to the $side by n places",
        "def rotate(numbers: list[int], n: int) -> list[int]:\n"
        "    if not numbers:\n"
        "        return []\n"
        "    n = $sign * n % len(numbers)\n"
        "    return numbers[n:] + numbers[:n]\n",
        sizes,
        one_of({"side": "left", "sign": 1}, {"side": "right", "sign": -1}),
    ),
    Family(
        "n written in base $k, as text (0 is '0')",
        "def in_base(n: int) -> str:\n"
        "    digits = ''\n"
        "    while n >= $k:\n"
        "        n, digit = divmod(n, $k)\n"
        "        digits = str(digit) + digits\n"
        "    return str(n) + digits\n",
        numbers,
        k_from(2, 9),
    ),
    Family(
        "the prime factors of n in rising order, each as often as it divides n; an empty list below 2; "
        "factors under $k are left out",
        "def prime_factors(n: int) -> list[int]:\n"
        "    found, factor = [], 2\n"
        "    while n > 1:\n"
        "        while n % factor == 0 and n > 0:\n"
        "            found.append(factor)\n"
        "            n //= factor\n"
        "        factor += 1\n"
        "    return [each for each in found if each >= $k]\n",
        numbers,
        k_of(3, 4, 6),
    ),
    Family(
        "the $what of a and b",
        "def divisor_or_multiple(a: int, b: int) -> int:\n"
        "    x, y = a, b\n"
        "    while y:\n"
        "        x, y = y, x % y\n"
        "    return $result\n",
        number_pairs,
        one_of(
            {"what": "greatest common divisor", "result": "x"},
            {"what": "least common multiple", "result": "a * b // x"},
            {
                "what": "product, divided by the square of the greatest common divisor,",
                "result": "a * b // (x * x)",
            },
        ),
    ),
    Family(
        "the text with each letter from a to z moved on by $k places in the alphabet, z going on at a; "
        "upper case stays upper case, all else stays as it is",
        "def shift_letters(text: str) -> str:\n"
        "    moved = ''\n"
        "    for each in text:\n"
        "        if 'a' <= each.lower() <= 'z':\n"
        "            start = ord('a') if each.islower() else ord('A')\n"
        "            each = chr(start + (ord(each) - start + $k) % 26)\n"
        "        moved += each\n"
        "    return moved\n",
        texts,
        k_from(1, 25),
    ),
    Family(
        "True where the letters and digits of the text, in lower case, read the same from both ends and are "
        "at least $k in number",
        "def mirrored(text: str) -> bool:\n"
        "    kept = [each.lower() for each in text if each.isalnum()]\n"
        "    return len(kept) >= $k and kept == kept[::-1]\n",
        texts,
        k_from(1, 4),
    ),
    Family(
        "the words of the text (parts between spaces) in reverse order, with single '$k' between them",
        "def reverse_words(text: str) -> str:\n    return '$k'.join(reversed(text.split()))\n",
        texts,
        k_of(" ", "_", "-"),
    ),
    Family(
        "a dict from each length of a word to the words of that length; lengths as text, words $order",
        "def by_length(words: list[str]) -> dict[str, list[str]]:\n"
        "    found = {}\n"
        "    for word in words:\n"
        "        found.setdefault(str(len(word)), []).append(word)\n"
        "    return {key: $result for key, value in found.items()}\n",
        word_lists,
        one_of(
            {"order": "in their order", "result": "value"},
            {"order": "sorted", "result": "sorted(value)"},
            {"order": "sorted and each once", "result": "sorted(set(value))"},
        ),
    ),
    Family(
        "the key with the $which value; of several such keys the first in the alphabet; '' for an empty dict",
        "def best_key(values: dict[str, int]) -> str:\n"
        "    return min(values, key=lambda key: ($sign * values[key], key), default='')\n",
        dicts,
        one_of({"which": "greatest", "sign": -1}, {"which": "smallest", "sign": 1}),
    ),
    Family(
        "a dict that leads back from each value (as text) to its keys, sorted; values under $k are left out",
        "def inverted(values: dict[str, int]) -> dict[str, list[str]]:\n"
        "    found = {}\n"
        "    for key in sorted(values):\n"
        "        if values[key] >= $k:\n"
        "            found.setdefault(str(values[key]), []).append(key)\n"
        "    return found\n",
        dicts,
        k_from(-9, 3),
    ),
    Family(
        "the sums of the $what of the grid",
        "def grid_sums(grid: list[list[int]]) -> list[int]:\n    return [sum(each) for each in $each]\n",
        grids,
        one_of({"what": "rows", "each": "grid"}, {"what": "columns", "each": "zip(*grid)"}),
    ),
)

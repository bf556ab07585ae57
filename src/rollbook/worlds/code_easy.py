"""Coding tasks of difficulty 1: one loop or one expression."""

from __future__ import annotations

from rollbook.worlds.code_families import Family, k_from, k_of
from rollbook.worlds.code_inputs import counts, dicts, lists, number_pairs, numbers, sizes, texts, word_lists

__all__ = ["EASY"]

EASY = (
    Family(
        "the list with $k added to each number",
        "def add_to_each(numbers: list[int]) -> list[int]:\n    return [each + $k for each in numbers]\n",
        lists,
        k_from(2, 99),
    ),
    Family(
        "how many numbers of the list are greater than $k",
        "def count_greater(numbers: list[int]) -> int:\n    return sum(each > $k for each in numbers)\n",
        lists,
        k_from(-5, 8),
    ),
    Family(
        "the sum of the numbers that $k divides without a remainder, 0 if there are none",
        "def sum_of_multiples(numbers: list[int]) -> int:\n"
        "    return sum(each for each in numbers if each % $k == 0)\n",
        lists,
        k_from(2, 7),
    ),
    Family(
        "the greatest number minus the smallest, $k for an empty list",
        "def spread(numbers: list[int]) -> int:\n    return max(numbers) - min(numbers) if numbers else $k\n",
        lists,
        k_of(0, -1),
    ),
    Family(
        "every $k-th number of the list, beginning with the first",
        "def every_nth(numbers: list[int]) -> list[int]:\n    return numbers[::$k]\n",
        lists,
        k_from(2, 4),
    ),
    Family(
        "how often the number $k stands in the list",
        "def how_often(numbers: list[int]) -> int:\n    return numbers.count($k)\n",
        counts,
        k_from(0, 4),
    ),
    Family(
        "the first n numbers of the list in reverse order (all of them if there are fewer)",
        "def reversed_head(numbers: list[int], n: int) -> list[int]:\n    return numbers[:n][::-1]\n",
        sizes,
    ),
    Family(
        "the sum of the digits of n, times $k",
        "def digit_sum(n: int) -> int:\n    return $k * sum(int(digit) for digit in str(n))\n",
        numbers,
        k_from(1, 9),
    ),
    Family(
        "the greatest of a, b and $k",
        "def greatest(a: int, b: int) -> int:\n    return max(a, b, $k)\n",
        number_pairs,
        k_from(5, 90),
    ),
    Family(
        "how many of the characters of the text are '$k', in upper or lower case",
        "def count_letter(text: str) -> int:\n    return text.lower().count('$k')\n",
        texts,
        k_of(*"aeiolnt"),
    ),
    Family(
        "the text without its spaces, in $k case",
        "def squeeze(text: str) -> str:\n    return text.replace(' ', '').$k()\n",
        texts,
        k_of("upper", "lower"),
    ),
    Family(
        "the words, each followed by '$k', joined into one text",
        "def join_words(words: list[str]) -> str:\n    return ''.join(word + '$k' for word in words)\n",
        word_lists,
        k_of(";", "-", "/", "+"),
    ),
    Family(
        "the words that have more than $k characters, in their order",
        "def long_words(words: list[str]) -> list[str]:\n    return [word for word in words if len(word) > $k]\n",
        word_lists,
        k_from(0, 3),
    ),
    Family(
        "the keys whose value is at least $k, sorted",
        "def keys_from(values: dict[str, int]) -> list[str]:\n"
        "    return sorted(key for key, value in values.items() if value >= $k)\n",
        dicts,
        k_from(-2, 12),
    ),
)

"""Coding tasks of difficulty 3: an algorithm of some steps."""

from __future__ import annotations

from rollbook.worlds.code_families import Family, k_from, one_of
from rollbook.worlds.code_inputs import counts, grids, intervals, lists, numbers, sizes, texts, word_lists

__all__ = ["HARD"]

HARD = (
    Family(
        "the greatest sum of numbers that stand side by side, with at least $k of them; 0 if there are not so many",
        "def best_run(numbers: list[int]) -> int:\n"
        "    sums = [\n"
        "        sum(numbers[i:j]) for i in range(len(numbers)) for j in range(i + $k, len(numbers) + 1)\n"
        "    ]\n"
        "    return max(sums, default=0)\n",
        lists,
        k_from(1, 3),
    ),
    Family(
        "how many numbers the longest $what subsequence has (numbers may be left out, the order stays)",
        "def longest_subsequence(numbers: list[int]) -> int:\n"
        "    best = []\n"
        "    for i, each in enumerate(numbers):\n"
        "        best.append(1 + max((best[j] for j in range(i) if numbers[j] $sign each), default=0))\n"
        "    return max(best, default=0)\n",
        lists,
        one_of(
            {"what": "strictly rising", "sign": "<"},
            {"what": "strictly falling", "sign": ">"},
            {"what": "never falling", "sign": "<="},
        ),
    ),
    Family(
        "the numbers sorted by how often they stand in the list, $order first; of those that stand equally often "
        "the smaller first; each number once",
        "def by_frequency(numbers: list[int]) -> list[int]:\n"
        "    return sorted(set(numbers), key=lambda each: ($sign * numbers.count(each), each))\n",
        counts,
        one_of({"order": "the most frequent", "sign": -1}, {"order": "the rarest", "sign": 1}),
    ),
    Family(
        "the $what of each n numbers that stand side by side, from left to right; an empty list if there are fewer",
        "def windows(numbers: list[int], n: int) -> list[int]:\n"
        "    return [$f(numbers[i : i + n]) for i in range(len(numbers) - n + 1)]\n",
        sizes,
        one_of({"what": "greatest", "f": "max"}, {"what": "smallest", "f": "min"}, {"what": "sum", "f": "sum"}),
    ),
    Family(
        "the intervals of the list joined where they share a number$touch, sorted by their start",
        "def joined(intervals: list[list[int]]) -> list[list[int]]:\n"
        "    found = []\n"
        "    for start, end in sorted(intervals):\n"
        "        if found and start <= found[-1][1] + $k:\n"
        "            found[-1][1] = max(found[-1][1], end)\n"
        "        else:\n"
        "            found.append([start, end])\n"
        "    return found\n",
        intervals,
        one_of({"touch": "", "k": 0}, {"touch": ", or where one begins right behind the other", "k": 1}),
    ),
    Family(
        "the greatest count of intervals that hold one and the same number (both ends belong to them), plus $k; "
        "$k for an empty list",
        "def most_at_once(intervals: list[list[int]]) -> int:\n"
        "    points = {point for each in intervals for point in each}\n"
        "    return $k + max((sum(a <= point <= b for a, b in intervals) for point in points), default=0)\n",
        intervals,
        k_from(0, 9),
    ),
    Family(
        "n as a Roman number, $what; '' for 0",
        "def roman(n: int) -> str:\n"
        "    pairs = [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'), (50, 'L'),\n"
        "             (40, 'XL'), (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]\n"
        "    text = ''\n"
        "    for value, letters in pairs:\n"
        "        text += letters * (n // value)\n"
        "        n %= value\n"
        "    return text$f\n",
        numbers,
        one_of({"what": "in capital letters", "f": ""}, {"what": "in small letters", "f": ".lower()"}),
    ),
    Family(
        "in how many ways n cents can be paid with coins of $a, $b and $c cents, modulo 1000007 (the order does not "
        "matter; there is one way to pay 0)",
        "def ways_to_pay(n: int) -> int:\n"
        "    ways = [1] + [0] * n\n"
        "    for coin in ($a, $b, $c):\n"
        "        for value in range(coin, n + 1):\n"
        "            ways[value] = (ways[value] + ways[value - coin]) % 1000007\n"
        "    return ways[n]\n",
        numbers,
        lambda rng: dict(zip("abc", sorted(rng.sample(range(1, 12), 3)), strict=True)),
    ),
    Family(
        "the text run-length encoded: each run of one character that is longer than $k becomes the character and the "
        "length of the run; shorter runs stay",
        "def run_lengths(text: str) -> str:\n"
        "    found, i = '', 0\n"
        "    while i < len(text):\n"
        "        j = i\n"
        "        while j < len(text) and text[j] == text[i]:\n"
        "            j += 1\n"
        "        found += text[i] + str(j - i) if j - i > $k else text[i:j]\n"
        "        i = j\n"
        "    return found\n",
        texts,
        k_from(1, 2),
    ),
    Family(
        "the longest part of the text in which no character comes twice (case $case); of several the first",
        "def longest_unique(text: str) -> str:\n"
        "    best = ''\n"
        "    for i in range(len(text)):\n"
        "        for j in range(i + 1, len(text) + 1):\n"
        "            part = text[i:j]\n"
        "            if len(set(part$f)) == len(part) and len(part) > len(best):\n"
        "                best = part\n"
        "    return best\n",
        texts,
        one_of({"case": "counts", "f": ""}, {"case": "does not count", "f": ".lower()"}),
    ),
    Family(
        "the words in groups of those that have the same letters, each group sorted, groups sorted by their $by; "
        "each word once",
        "def anagrams(words: list[str]) -> list[list[str]]:\n"
        "    groups = {}\n"
        "    for word in sorted(set(words)):\n"
        "        groups.setdefault(''.join(sorted(word)), []).append(word)\n"
        "    return sorted(groups.values(), key=lambda group: $key)\n",
        word_lists,
        one_of(
            {"by": "first word", "key": "group[0]"},
            {"by": "size (largest first), then by their first word", "key": "(-len(group), group[0])"},
        ),
    ),
    Family(
        "the numbers of the grid read in a spiral from the top left corner, $way",
        "def spiral(grid: list[list[int]]) -> list[int]:\n"
        "    rows, found = $start, []\n"
        "    while rows:\n"
        "        found += rows[0]\n"
        "        rows = [list(row) for row in zip(*rows[1:])][::-1]\n"
        "    return found\n",
        grids,
        one_of(
            {"way": "clockwise", "start": "[list(row) for row in grid]"},
            {"way": "counter-clockwise (first down)", "start": "[list(row) for row in zip(*grid)]"},
        ),
    ),
    Family(
        "the smallest sum of a path from the top left to the bottom right corner of the grid that goes right or down "
        "only, times $k; 0 for an empty grid",
        "def cheapest_path(grid: list[list[int]]) -> int:\n"
        "    if not grid:\n"
        "        return 0\n"
        "    best = {}\n"
        "    for i, row in enumerate(grid):\n"
        "        for j, value in enumerate(row):\n"
        "            before = [best[at] for at in ((i - 1, j), (i, j - 1)) if at in best]\n"
        "            best[i, j] = value + min(before, default=0)\n"
        "    return $k * best[len(grid) - 1, len(grid[0]) - 1]\n",
        grids,
        k_from(2, 5),
    ),
)

"""What the layer costs, beside a bare client, memcpy and plain decompression measured in the same run.

Rule: a figure is never a test. Every row says how often it was measured and which of the tries stands (the median or
the minimum), and carries its target and, where there is one, a floor or peer that did its work on the same machine
within the same minute, so that the ratio means something where the figure alone does not.
"""

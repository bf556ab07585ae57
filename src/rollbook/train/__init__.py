"""A small policy-gradient loop over samples: it exists to prove them, and to be read. Needs the extra ``train``.

The names are in the modules, for the package itself loads nothing: `batch` (samples as tensors), `loss`, `mismatch`
(behaviour against trainer), `learner` (one step), `model` (a Llama over transformers), `loop`, `plot`.
"""

"""How the model `tiny` is made: run ``python -m training.tiny OUT``. No part of the package that users install."""

"""Live doors: our rollouts inside of a trainer that runs. Each module imports its trainer, or what that brings."""

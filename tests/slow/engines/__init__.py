"""The clients against real engines: `make test-engines`."""

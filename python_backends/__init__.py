"""The plain Python behind the Triton models: importable and testable without Triton."""

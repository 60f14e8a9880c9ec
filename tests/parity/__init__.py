"""Parity with transformers, stage by stage, on two random checkpoints; see make_references.py."""

"""Token ids to text pieces: detokenising, stop strings, finish reasons, log-probabilities and usage."""

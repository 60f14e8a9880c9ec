"""The three graphs of an engine folder, each put together from a checkpoint's weights."""

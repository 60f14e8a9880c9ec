"""The one adapter to `triton_python_backend_utils`: one module a Triton model, and the tensors at its border."""

"""Other people's tensors as arrays that a kernel can compute on, and the way back."""

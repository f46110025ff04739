"""Forward mode: tensors that carry a tangent, and the tangents of what is computed with them."""

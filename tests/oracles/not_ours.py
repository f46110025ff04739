"""Entries of PyTorch's op database that are declared not to be this package's, each under its reason."""

NOT_OURS: dict[str, str] = {
    "there is no complex32: NumPy has none": "chalf",
    "torch's own result is off: finite differences, or float64, give ours": """
        as_strided_scatter logcumsumexp nn.functional.ctc_loss
    """,
    "torch's gradient reads the triangle that the values do not depend on; of symmetric matrices it is ours": """
        linalg.pinv/hermitian
    """,
    "the sample is a view that reads its storage beside itself; only the view itself is carried over to ours": """
        as_strided/partial_views
    """,
    "edges that do not ascend are refused; torch counts something": "histogramdd",
    "internal to torch, or an operator without a public function": "grid_sampler_2d grid_sampler_3d hash_tensor slice",
    "random: torch's draws are not ours": """
        nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
        nn.functional.scaled_dot_product_attention nn.functional.multi_head_attention_forward svd_lowrank
    """,
}

# The same of samples of complex numbers (complex128).
NOT_OURS_COMPLEX: dict[str, str] = {
    "torch's gradient has an anti-Hermitian part, to which Hermitian matrices do not answer": """
        cholesky linalg.cholesky linalg.cholesky_ex
    """,
    "random: torch's draws are not ours": "pca_lowrank",
}

# Right in the samples that always run, not in every later one; with --long held to be exactly these.
NOT_IN_EVERY_SAMPLE: dict[str, str] = {
    "cov": "of two observations of weights, whose gradient is 0: both give rounding, torch's another",
}

NOT_OURS_WHOLE = {  # of entries on integers and truths
    "the indices of equal elements stand in another order": "argsort sort kthvalue topk",
    "torch gives the dtype that came, we the sums' int64": "masked.cumsum masked.cumprod",
    "torch gives whole numbers, we floats": "masked.logsumexp",
}

# entries whose tangents (forward mode) are not torch's: name -> why
NOT_OURS_FORWARD = {
    "masked.logaddexp": "where both are masked out torch's tangent is NaN, ours 0",
    "triangular_solve": "torch counts the tangent of the triangle that is not read",
}

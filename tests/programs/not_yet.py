"""Programs that are not right yet, each with why: a listed one that passes is a failure (on Python
3.11: others differ in a few), so the lists only shrink.

WRONG: compiled is not eager. BROKEN: torch captures it in one graph, we do not. EAGER: eager is not torch's.
"""

WRONG: dict[str, str] = {}
BROKEN: dict[str, str] = {
    "changing_numbers.dtypes_change": ": 9 parts, not 12: [('tuple', ('Tensor', None, 'float32",
    "changing_numbers.integer_index_changes": ": 9 parts, not 13: [('Tensor', None, 'float32', (), Fal",
    "data_branches.item_as_a_number": "GraphBreak: item() needs the data of a traced tensor",
    "data_branches.numpy_in_the_middle": "GraphBreak: float() needs the data of a traced tensor",
    "data_branches.to_lists": "GraphBreak: tolist() needs the data of a traced tensor",
    "experts.routing_by_index_selection": "GraphBreak: nonzero needs the data of a traced tensor",
    "masks.boolean_indexing": "GraphBreak: indexing by a mask needs the data of a trac",
}
EAGER: dict[str, str] = {}

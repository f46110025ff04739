"""Minimum cut of a flow network with integer capacities.

In: edges (from, to, capacity) between vertices 0..n-1, a source and a sink. Out: the vertices on the source's side of
a minimum cut, the one nearest to the sink.
Method: Dinic's blocking flows (Soviet Math. Dokl. 11, 1970): level graph by breadth-first search, then augmenting
paths by depth-first search that never retries a dead edge. Joint graphs are shallow networks: few phases are needed.
Why not a library: networkx needs 0.15 s to import and holds each edge in three dictionaries; it judges this in tests.
"""

from __future__ import annotations

INFINITE = 1 << 60  # more than the bytes of any graph


class FlowNetwork:
    """Edges are stored in pairs: edge e and its reverse e ^ 1."""

    def __init__(self, vertices: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(vertices)]
        self.head: list[int] = []
        self.left: list[int] = []  # residual capacity

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge tail -> head."""
        for vertex, target, room in ((tail, head, capacity), (head, tail, 0)):
            self.out[vertex].append(len(self.head))
            self.head.append(target)
            self.left.append(room)

    def source_side(self, source: int, sink: int) -> set[int]:
        """The source's side of the minimum cut nearest to the sink; the network is used up."""
        while (levels := self._levels(source, sink))[sink] >= 0:
            tried = [0] * len(self.out)
            while self._augment(source, sink, levels, tried):
                pass
        return set(range(len(self.out))) - self._reaching(sink)

    def _reaching(self, sink: int) -> set[int]:
        """The vertices from which the sink can be reached along edges with room."""
        found, todo = {sink}, [sink]
        while todo:
            for edge in self.out[todo.pop()]:
                tail = self.head[edge]
                if tail not in found and self.left[edge ^ 1]:
                    found.add(tail)
                    todo.append(tail)
        return found

    def _levels(self, source: int, sink: int) -> list[int]:
        """Distance from the source along edges with room; -1: out of reach, or not needed to know the sink's."""
        levels = [-1] * len(self.out)
        levels[source] = 0
        frontier = [source]
        while frontier and levels[sink] < 0:
            following = []
            for vertex in frontier:
                for edge in self.out[vertex]:
                    head = self.head[edge]
                    if levels[head] < 0 and self.left[edge]:
                        levels[head] = levels[vertex] + 1
                        following.append(head)
            frontier = following
        return levels

    def _augment(self, source: int, sink: int, levels: list[int], tried: list[int]) -> bool:
        """Push flow along one shortest path; False if there is none left."""
        path: list[int] = []
        vertex = source
        while vertex != sink:
            edge = self._next_edge(vertex, levels, tried)
            if edge >= 0:
                path.append(edge)
                vertex = self.head[edge]
            elif path:
                vertex = self.head[path.pop() ^ 1]
                tried[vertex] += 1
            else:
                return False
        room = min(self.left[edge] for edge in path)
        for edge in path:
            self.left[edge] -= room
            self.left[edge ^ 1] += room
        return True

    def _next_edge(self, vertex: int, levels: list[int], tried: list[int]) -> int:
        """The next edge from `vertex` that has room and leads one level on; -1 if there is none."""
        out = self.out[vertex]
        while tried[vertex] < len(out):
            edge = out[tried[vertex]]
            if self.left[edge] and levels[self.head[edge]] == levels[vertex] + 1:
                return edge
            tried[vertex] += 1
        return -1

"""A pass of torch's compiler; apart from what it is for, since it is defined by the compiler's own classes."""

from __future__ import annotations

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node


class SendEarly(CustomGraphPass):
    """Sends gradients as soon as they are there, and leaves where it is what waits for the messages.

    Autograd comes last to what was first in the forward pass, whether it could begin earlier or not, and so do the
    graphs that are made of it.
    """

    def __call__(self, graph: Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.epass.join.default):
            move_up(node)
            for user in list(node.users):
                if user.all_input_nodes == [node]:  # the message, not what takes its answer
                    node.append(user)

    def uuid(self) -> object:
        """What the compiler's cache knows this pass by."""
        return get_hash_for_files((__file__,))


def move_up(node: Node) -> None:
    """To right after the last of what it is made of, together with what is made for it alone."""
    for needed in node.all_input_nodes:
        if needed.all_input_nodes and list(needed.users) == [node]:
            move_up(needed)
    max(node.all_input_nodes).append(node)

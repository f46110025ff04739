"""Libraries of graphs, probabilities, differential equations and symmetries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from library_common import Found, draw, steps, with_weights
from torch import nn


def geometric(mode: str) -> Found:
    """torch_geometric: a GCN and attention over a batch of graphs, pooled."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_add_pool

    rng = np.random.default_rng(0)
    graphs = []
    for nodes in (5, 7, 4):
        edges = torch.from_numpy(rng.integers(0, nodes, (2, 3 * nodes)))
        graphs.append(Data(x=torch.from_numpy(rng.standard_normal((nodes, 6))), edge_index=edges))
    batch = Batch.from_data_list(graphs)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = GCNConv(6, 8), GATConv(8, 4, heads=2), SAGEConv(8, 8, aggr="max")
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
            h = self.first(x, edge_index).tanh()
            h = self.second(h, edge_index).tanh()
            h = self.third(h, edge_index).tanh()
            return self.head(global_add_pool(h, which, size=3))

    net = with_weights(Net().double())
    labels = torch.tensor([0, 2, 1])
    return steps(net, lambda m: nn.functional.cross_entropy(m(batch.x, batch.edge_index, batch.batch), labels), mode)


def geometric_sparse(mode: str) -> Found:
    """torch_geometric: a GCN, SAGE and GIN over the sparse adjacency of a graph, COO and CSR; its transforms of one."""
    from torch_geometric import transforms
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv, GINConv, SAGEConv
    from torch_geometric.utils import degree, to_edge_index, to_torch_coo_tensor, to_torch_csr_tensor

    edges = torch.from_numpy(np.random.default_rng(0).integers(0, 9, (2, 24)))
    x, labels = draw(9, 6), torch.from_numpy(np.arange(9) % 3)
    data = Data(x=x, edge_index=edges, num_nodes=9)
    ones = transforms.ToSparseTensor(layout=torch.sparse_csr)(data).adj_t.double()
    weights = draw(24, seed=1).abs()
    coo, csr = (make(edges, weights, size=9).transpose(0, 1) for make in (to_torch_coo_tensor, to_torch_csr_tensor))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(6, 8), SAGEConv(8, 8)
            self.third, self.fourth = GINConv(nn.Linear(8, 8)), GCNConv(8, 3, cached=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x, coo.coalesce()).tanh()
            h = self.second(h, ones).tanh()
            h = self.third(h, ones).tanh()
            return self.fourth(h, csr.to_sparse().coalesce())

    found = steps(with_weights(Net().double()), lambda m: nn.functional.cross_entropy(m(x), labels), mode)
    index, values = to_edge_index(coo)
    return found | {"index": index.numpy(), "values": values.numpy(), "degree": degree(index[0], 9).numpy()}


def gaussian_process(mode: str) -> Found:
    """gpytorch: an exact GP learns its hyperparameters, then predicts."""
    import gpytorch

    x = torch.linspace(0, 1, 12, dtype=torch.float64)
    y = torch.sin(6 * x) + 0.1 * draw(12)

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, likelihood: gpytorch.likelihoods.GaussianLikelihood) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Exact(likelihood).double()
    model.train()
    likelihood.train()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    found = steps(model, lambda m: -mll(m(x), y), "eager", torch.optim.Adam(model.parameters(), lr=0.1))
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predicted = likelihood(model(torch.linspace(0, 1.2, 7, dtype=torch.float64)))
    return found | {"mean": predicted.mean.numpy(), "variance": predicted.variance.numpy()}


def variational(mode: str) -> Found:
    """pyro's SVI on a conjugate model; the guide's draws are made reparametrised from fixed numbers."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO, TraceEnum_ELBO, config_enumerate

    pyro.clear_param_store()
    data = draw(20) + 2.0

    class Fixed(dist.Normal):
        """A Normal whose draws are its quantiles of given numbers."""

        def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
            return self.loc + self.scale * 0.37

    def model() -> None:
        mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=torch.float64), 3.0))
        scale = pyro.param("scale", torch.ones((), dtype=torch.float64), constraint=dist.constraints.positive)
        with pyro.plate("data", 20):
            pyro.sample("x", dist.Normal(mean, scale), obs=data)

    def guide() -> None:
        loc = pyro.param("loc", torch.zeros((), dtype=torch.float64))
        width = pyro.param("width", torch.ones((), dtype=torch.float64), constraint=dist.constraints.interval(0.1, 5.0))
        pyro.sample("mean", Fixed(loc, width))

    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step() for _ in range(5)]

    @config_enumerate
    def mixture() -> None:
        weights = pyro.param("weights", torch.ones(2, dtype=torch.float64) / 2, constraint=dist.constraints.simplex)
        places = pyro.param("places", torch.tensor([0.0, 2.0], dtype=torch.float64))
        with pyro.plate("data", 20):
            kind = pyro.sample("kind", dist.Categorical(weights))
            pyro.sample("x", dist.Normal(places[kind], 1.0), obs=data)

    enumerated = SVI(mixture, lambda: None, pyro.optim.Adam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=1))
    found = {"losses": np.array(losses), "enumerated": np.array([enumerated.step() for _ in range(3)])}
    return found | {f"p.{name}": p.detach().numpy() for name, p in pyro.get_param_store().items()}


def equivariant(mode: str) -> Found:
    """e3nn: spherical harmonics, a tensor product, gates; and that they turn with their input."""
    torch.set_default_dtype(torch.float64)
    import e3nn.math._normalize_activation as normalizing
    from e3nn import o3
    from e3nn.nn import Gate

    # the second moment of an activation, by draws that are the same on both sides
    normalizing.moment = lambda f, n, dtype=None, device=None: f(draw(1000)).pow(n).mean()
    irreps, hidden = o3.Irreps("4x0e + 2x1o"), o3.Irreps("4x0e + 3x1o")
    gate = Gate("4x0e", [torch.tanh], "3x0e", [torch.sigmoid], "3x1o")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sh = o3.SphericalHarmonics([0, 1, 2], normalize=True, normalization="component")
            self.product = o3.FullyConnectedTensorProduct(irreps, "0e + 1o + 2e", gate.irreps_in)
            self.gate = gate
            self.linear = o3.Linear(hidden, o3.Irreps("0e + 1o"))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            return self.linear(self.gate(self.product(x, self.sh(at))))

    net = with_weights(Net())
    x, at = draw(5, irreps.dim), draw(5, 3, seed=1)
    found = steps(net, lambda m: m(x, at).square().sum(), mode)
    turn = o3.matrix_z(torch.tensor(0.7)) @ o3.matrix_x(torch.tensor(0.3))
    before, after = net(x, at), net(x @ irreps.D_from_matrix(turn).T, at @ turn.T)
    out = o3.Irreps("0e + 1o").D_from_matrix(turn)
    assert (after - before @ out.T).abs().max() < 1e-9
    return found | {"out": before.detach().numpy()}


def neural_ode(mode: str) -> Found:
    """torchdiffeq: a neural ODE, by its adjoint and through the solver."""
    from torchdiffeq import odeint, odeint_adjoint

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y**3) * (1 + 0.1 * t)

    start, times = draw(4, 2), torch.linspace(0, 1, 4, dtype=torch.float64)

    def taken(solve: Any) -> Found:
        accurately = {"method": "dopri5", "rtol": 1e-9, "atol": 1e-9}
        field = with_weights(Field().double())
        return steps(field, lambda m: solve(m, start, times, **accurately).square().sum(), "eager")

    through = {f"{name}.through": value for name, value in taken(odeint).items()}
    return through | {f"{name}.adjoint": value for name, value in taken(odeint_adjoint).items()}


PROGRAMS = {
    "torch_geometric": geometric, "torch_geometric_sparse": geometric_sparse, "gpytorch": gaussian_process,
    "pyro": variational, "e3nn": equivariant, "torchdiffeq": neural_ode,
}  # fmt: skip

"""torch_geometric: graph networks on a random graph, without its compiled packages."""

import torch
from start import main, normal, script, train


def graph(rng, nodes=40, edges=160, classes=3):
    from torch_geometric.data import Data

    kinds = rng.integers(0, classes, nodes)
    ends = rng.integers(0, nodes, (2, edges))
    x = normal(rng, nodes, 8)
    x[:, :classes] += torch.nn.functional.one_hot(torch.from_numpy(kinds), classes)
    return Data(x=x, edge_index=torch.from_numpy(ends), y=torch.from_numpy(kinds))


def classify(seed, make):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = make()

        def forward(self, data):
            return self.second(torch.relu(self.first(data.x, data.edge_index)), data.edge_index)

    net = Net()

    def loss_of(rng):
        data = graph(rng)
        return torch.nn.functional.cross_entropy(net(data), data.y)

    return train(net, seed, loss_of, 40, lr=1e-2)


@script("torch_geometric", "GCN")
def gcn(seed):
    from torch_geometric.nn import GCNConv

    return classify(seed, lambda: (GCNConv(8, 16), GCNConv(16, 3)))


@script("torch_geometric", "GAT")
def gat(seed):
    from torch_geometric.nn import GATConv

    return classify(seed, lambda: (GATConv(8, 8, heads=2), GATConv(16, 3)))


@script("torch_geometric", "GraphSAGE, batches of graphs, pooling")
def sage(seed):
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import SAGEConv, global_add_pool, global_mean_pool

    first, second, head = SAGEConv(8, 16), SAGEConv(16, 16, aggr="max"), torch.nn.Linear(32, 1)
    net = torch.nn.ModuleList([first, second, head])

    def loss_of(rng):
        (batch,) = DataLoader([graph(rng, 12, 40) for _ in range(6)], batch_size=6)
        x = second(torch.relu(first(batch.x, batch.edge_index)), batch.edge_index)
        y = head(torch.cat([global_mean_pool(x, batch.batch), global_add_pool(x, batch.batch)], 1))
        return ((y[:, 0] - global_mean_pool(batch.y[:, None].float(), batch.batch)[:, 0]) ** 2).mean()

    return train(net, seed, loss_of, 24, lr=1e-2)


if __name__ == "__main__":
    main()

"""A small deterministic training: prints the last loss bit for bit. TRAIN_STEPS, TRAIN_GRAPH=1, TRAIN_WORKERS=N; --time prints ms a step."""
import os
import sys
import time

import torch

torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
torch.use_deterministic_algorithms(True, warn_only=True)
steps, workers = int(os.environ.get("TRAIN_STEPS", 30)), int(os.environ.get("TRAIN_WORKERS", 0))
net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(),
                          torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(64 * 64, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(steps * 64, 3, 64, 64, generator=generator), torch.randint(0, 10, (steps * 64,), generator=generator))


def step(x, y):
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss


def main():
    loss = None
    if os.environ.get("TRAIN_GRAPH"):
        x, y = (t.cuda() for t in next(iter(torch.utils.data.DataLoader(data, batch_size=64))))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(x, y)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step(x, y)
        for _ in range(steps):
            graph.replay()
    else:
        for x, y in torch.utils.data.DataLoader(data, batch_size=64, num_workers=workers):
            loss = step(x.cuda(non_blocking=True), y.cuda(non_blocking=True))
    print("loss", loss.item().hex())
    if "--time" in sys.argv:
        x, y = (t.cuda() for t in next(iter(torch.utils.data.DataLoader(data, batch_size=64))))
        for _ in range(20):
            step(x, y)
        torch.cuda.synchronize()
        blocks = []
        for _ in range(15):  # the median of blocks: what else the machine does now and then is not the question
            begin = time.perf_counter()
            for _ in range(100):
                step(x, y)
            torch.cuda.synchronize()
            blocks.append((time.perf_counter() - begin) / 100 * 1e3)
        print("ms", sorted(blocks)[len(blocks) // 2])


if __name__ == "__main__":
    main()

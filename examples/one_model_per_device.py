#!/usr/bin/env python3
"""A model on each GPU of one process, as one uses TensorFlow's logical devices: each is trained on its own, then all vote.

  berth run -g 3 -m 8G python3 examples/one_model_per_device.py
  python3 examples/one_model_per_device.py --device cpu --models 3     without any GPU

Nothing in here knows of berth. Every model's weights stay on its own device; inputs and outputs are copied between them.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, FEATURES = 4, 16


def examples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0)) * 2
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return centres[labels] + torch.randn(count, FEATURES, generator=generator), labels


def make(device, seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES)).to(device)


def train(model, device, seed, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        inputs, labels = examples(128, 100 * seed + step)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs.to(device)), labels.to(device)).backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser(description="Trains a model on each GPU of one process.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", type=int, help="default: one a GPU")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    count = options.models or (torch.cuda.device_count() if options.device == "cuda" else 2)
    devices = [torch.device("cpu") if options.device == "cpu" else torch.device("cuda", i) for i in range(count)]

    models = [make(device, seed) for seed, device in enumerate(devices)]
    for seed, (model, device) in enumerate(zip(models, devices)):
        train(model, device, seed, options.steps)

    inputs, labels = examples(512, 12345)
    votes = torch.zeros(len(inputs), CLASSES, device=devices[0])
    for i, (model, device) in enumerate(zip(models, devices)):
        answers = F.softmax(model(inputs.to(device)), dim=1)
        assert answers.device == device or device.type == "cpu"
        print(f"model {i} on {device}: {100 * (answers.argmax(1).cpu() == labels).float().mean():.1f} % right")
        votes += answers.to(devices[0])  # from its device to the first one's
    right = (votes.argmax(1).cpu() == labels).float().mean().item()
    print(f"all {count} together: {100 * right:.1f} % right")
    if right < 0.9:
        raise SystemExit("the models have not learned")


if __name__ == "__main__":
    main()

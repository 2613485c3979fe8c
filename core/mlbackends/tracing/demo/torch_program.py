"""A program for an installed torch: layers that its oneDNN runs, and products that its MKL runs."""

PROGRAM = """
import torch

torch.manual_seed(0)
images = torch.randn(8, 16, 56, 56)
layers = torch.nn.Sequential(
    torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3, padding=1)
)
half = torch.nn.Linear(256, 256).to(torch.bfloat16)
square, vector = torch.randn(512, 512), torch.randn(64, 256, dtype=torch.bfloat16)
with torch.no_grad():
    for _ in range(5):
        layers(images)
        half(vector)
        square @ square
        torch.linalg.lu_factor(square)
        torch.fft.fft(square[0])
"""

"""Stands for torchvision."""

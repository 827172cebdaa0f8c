"""torchvision and torchaudio beside a CPU torch, in a process of its own since imports cannot be undone."""

import json
import subprocess
import sys

import torch

from tasks.payloads.torch_repair import non_maximum_suppression

CODE = """
import json
from tasks.payloads.torch_repair import repair
first, second = repair(), repair()
import torch, torchvision.ops, torchaudio.functional, torchaudio.transforms
from facenet_pytorch import InceptionResnetV1
from transformers import HubertModel
wave = torch.sin(torch.arange(4800) / 10)[None]
boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]])
print(json.dumps({
    "first": first, "second": second,
    "resampled": torchaudio.functional.resample(wave, 48000, 16000).shape[1],
    "mel": list(torchaudio.transforms.MelSpectrogram(16000, n_mels=8)(wave).shape[:2]),
    "kept": torch.ops.torchvision.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist(),
}))
"""


def test_both_packages_and_those_that_need_them_work() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["first"]) == {"torchvision", "torchaudio"}
    assert set(found["second"].values()) == {"loaded before"}
    assert found["resampled"] == 1600
    assert found["mel"] == [1, 8]
    assert found["kept"] == [1, 2]


def test_suppression_keeps_the_best_of_overlapping_boxes() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 9], [0, 0, 5, 5], [50, 50, 60, 60]])
    assert non_maximum_suppression(boxes, torch.tensor([0.8, 0.9, 0.7, 0.1]), 0.5).tolist() == [1, 2, 3]
    assert non_maximum_suppression(boxes[:0], torch.tensor([]), 0.5).tolist() == []

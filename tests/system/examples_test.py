"""The programs in examples/, which know nothing of berth: on the processor alone, and on virtual devices of the simulated GPU."""
import os
import re
import shutil
import subprocess
import sys
import unittest

from cli_case import BUILD, Case, SOURCE

PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's PyTorch
EXAMPLES = f"{SOURCE}/examples"


def has_torch():
    return subprocess.run([PYTHON, "-c", "import torch.distributed as d; assert d.is_available()"], capture_output=True).returncode == 0


@unittest.skipUnless(has_torch(), "no PyTorch here (Debian: python3-torch)")
class OnTheProcessor(unittest.TestCase):
    def run_example(self, name, *options):
        run = subprocess.run([PYTHON, f"{EXAMPLES}/{name}", "--device", "cpu", *options], capture_output=True, text=True, timeout=300,
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_ranks_agree_with_each_other_and_with_one_process(self):
        said = self.run_example("ddp_transformer.py", "--ranks", "4", "--steps", "3", "--epochs", "2", "--check")
        losses = {}
        for rank, epoch, loss in re.findall(r"rank (\d+) epoch (\d+) validation loss ([\d.]+)", said):
            losses.setdefault(epoch, {})[rank] = loss
        self.assertEqual({epoch: sorted(ranks) for epoch, ranks in losses.items()}, {e: ["0", "1", "2", "3"] for e in ("0", "1")})
        for ranks in losses.values():
            self.assertEqual(len(set(ranks.values())), 1, losses)
        self.assertNotEqual(losses["0"]["0"], losses["1"]["0"])
        self.assertLess(float(re.search(r"largest difference from one process: (\S+)", said)[1]), 1e-3)

    def test_a_batch_that_cannot_be_shared_out_is_refused(self):
        run = subprocess.run([PYTHON, f"{EXAMPLES}/ddp_transformer.py", "--device", "cpu", "--ranks", "3"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--batch 32 is no multiple of --ranks 3", run.stderr)

    def test_a_model_on_each_device(self):
        said = self.run_example("one_model_per_device.py", "--models", "3")
        self.assertEqual(len(re.findall(r"model \d on cpu: ", said)), 3)
        self.assertIn("all 3 together", said)


class OnVirtualDevices(Case):
    def test_one_process_uses_each_of_them(self):
        code, said, errors = self.berth("run", "-g", "4", "-m", "2G", f"{BUILD}/examples/devices")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(re.findall(r"^GPU (\d): .*, (BE00:\d\d:00\.0), \d+ of (\d+) MiB free$", said, re.M),
                         [(str(i), f"BE00:0{i + 1}:00.0", "2048") for i in range(4)])
        self.assertIn("4 GPUs, passed round: right", said)

    def test_without_berth_it_sees_the_cards(self):
        code, said, errors = self.finish(self.start(program=f"{BUILD}/examples/devices", env={**self.environment, "LD_LIBRARY_PATH": f"{BUILD}/lib/berth/sim"}))
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("1 GPUs, passed round: right", said)

    def test_a_rank_uses_its_own(self):
        ranks = "for r in 0 1 2 3; do OMPI_COMM_WORLD_LOCAL_RANK=$r \"$0\" --rank & done; wait"
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", f"{BUILD}/examples/devices", "--rank"] \
            if shutil.which("mpirun") else ["sh", "-c", ranks, f"{BUILD}/examples/devices"]
        code, said, errors = self.berth("run", "-g", "4", "-m", "2G", *launcher)
        self.assertEqual(code, 0, errors)
        self.assertEqual(sorted(re.findall(r"^rank (\d): its buffer holds (\d+)$", said, re.M)), [(str(i), str(1000 + i)) for i in range(4)])
        self.assertEqual(sorted(re.findall(r"^GPU (\d): ", said, re.M)), ["0", "1", "2", "3"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)

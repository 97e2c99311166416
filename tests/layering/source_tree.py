"""The files of the source tree: what git knows or would add; in an exported tree, everything but the build folder."""
import subprocess
import sys
from pathlib import Path

SOURCE = Path(sys.argv[2]).resolve()


def files():
    listing = subprocess.run(["git", "-C", SOURCE, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True)
    if listing.returncode == 0:
        found = [SOURCE / name for name in listing.stdout.decode().split("\0") if name]
    else:
        found = [path for path in SOURCE.rglob("*") if path.relative_to(SOURCE).parts[0] != "build"]
    return sorted(path for path in found if path.is_file())


def name(path):
    return str(path.relative_to(SOURCE))


def finish(complaints):
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)

#!/usr/bin/env bash
# Runs one of three stages of what is to be known on a machine with a GPU; docs/gpu.md tells what each does and how to read it.
#     scripts/gpu_check.sh BUNDLE correctness|training|speed [PART | PART/WORD]...
#     scripts/gpu_check.sh plan                    (the parts of each stage, and the most seconds that each may take)
# BUNDLE is the archive that scripts/gpu_pack.sh made, or a folder that it was unpacked into. Parts or families that are named
# are run alone. Needs NVIDIA's driver, bash, and Python 3.11 or newer without packages; PyTorch with CUDA to compare with, if it
# is there. Everything is written below the folder OUT, as it comes.
set -euo pipefail
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "error: python3 is needed, of version 3.11 or newer" >&2
    exit 2
fi
# In the place of this shell, so that a signal to end reaches it.
exec python3 -u "$(dirname "$0")/gpu_check.py" "$@"

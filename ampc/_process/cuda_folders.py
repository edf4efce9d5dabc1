"""Where CUDA's libraries may lie."""

from __future__ import annotations

import glob
import os
import sys
from typing import List


def folders() -> List[str]:
    """Looked at in this order when CUDA is first used: the libraries of PyPI's packages beside ampc and wherever else this Python
    imports from, conda's, the toolkit's, and the driver's on WSL. Folders that are not there are left out."""
    beside = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sites = [beside, *(site for site in sys.path if isinstance(site, str) and site)]
    nvidia = [path for path in (os.path.join(site, "nvidia") for site in dict.fromkeys(sites)) if os.path.isdir(path)]
    packages = [path for folder in nvidia for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*", "lib")))]
    conda = [os.environ.get("CONDA_PREFIX"), sys.prefix if os.path.isdir(os.path.join(sys.prefix, "conda-meta")) else None]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    others = [os.path.join(prefix, "lib") for prefix in conda if prefix] + [os.path.join(top, "lib64") for top in toolkits if top]
    return [path for path in dict.fromkeys([*packages, *others, "/usr/lib/wsl/lib"]) if os.path.isdir(path)]

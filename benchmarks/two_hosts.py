"""Two hosts on one machine: network namespaces with a cable between them, for what processes of several hosts do. Open MPI's launcher
starts the processes, and takes TCP. Only the namespaces' own addresses are used."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

NET = "10.213.7."  # in namespaces of our own, so that it is nobody else's
AGENT = """#!/bin/sh
# agent HOST COMMAND: what ssh is elsewhere
case $1 in {net}2|{b}) name={b};; *) name={a};; esac
shift
exec ip netns exec $name unshare --uts sh -c "hostname $name; $*"
"""


def why_not() -> Optional[str]:
    """Why there can be no two hosts here; None where there can."""
    from ampc._process import launcher as launch

    mpiexec = launch.mpiexec()
    if mpiexec is None or not launch.is_open_mpi(mpiexec):
        return "needs Open MPI's mpiexec"
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return "needs root, iproute2 and unshare"
    name = f"ampc{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode == 0:
        subprocess.run(["ip", "netns", "del", name], check=True)
        return None
    return f"network namespaces cannot be made: {made.stderr.strip()}"


def ip(*words: str) -> None:
    """iproute2's command."""
    subprocess.run(["ip", *words], check=True)


class TwoHosts:
    """They are there within ``with``. ``folder`` takes files of the launcher's."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._names = folder, [f"ampc{os.getpid()}{which}" for which in "ab"]

    def __enter__(self) -> TwoHosts:
        (a, b), agent = self._names, self._folder / "agent"
        agent.write_text(AGENT.format(a=a, b=b, net=NET))
        agent.chmod(0o755)
        try:
            for name in self._names:
                ip("netns", "add", name)
            ip("link", "add", "cable1", "netns", a, "type", "veth", "peer", "name", "cable2", "netns", b)
            for number, name in enumerate(self._names, 1):
                ip("-n", name, "addr", "add", f"{NET}{number}/24", "dev", f"cable{number}")
                for link in ("lo", f"cable{number}"):
                    ip("-n", name, "link", "set", link, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def hostfile(self, size: int) -> str:
        """A file for mpiexec with half of the processes on each host."""
        file = self._folder / f"hosts{size}"
        file.write_text("".join(f"{NET}{number} slots={size // 2}\n" for number in (1, 2)))
        return str(file)

    def environment(self, given: Dict[str, str]) -> Dict[str, str]:
        """Variables for the launcher."""
        return {**given, "PRTE_MCA_plm_ssh_agent": str(self._folder / "agent"), "OMPI_MCA_btl_tcp_if_include": NET + "0/24",
                "PRTE_MCA_prte_if_include": NET + "0/24"}

    def on_the_first(self, command: List[Any]) -> List[str]:
        """The command line that runs a command on the first host."""
        name = self._names[0]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f"hostname {name}; exec {shlex.join(map(str, command))}"]

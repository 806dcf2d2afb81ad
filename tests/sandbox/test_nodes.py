"""What a node of the sandbox is to the jobs on it, and what is left of it when it dies."""

from __future__ import annotations

from safelaunch.sandbox.cluster import Sandbox


def test_each_task_of_an_ordinary_user_sees_its_nodes_name_and_gpus(sandbox: Sandbox) -> None:
    task = "echo $(hostname -s) $(id -un) $(id -Gn | tr ' ' ,) $CUDA_VISIBLE_DEVICES"
    said = sandbox.run(["srun", "-N4", "--gpus-per-node=8", "bash", "-c", task])
    expected = [f"n{i} sl-alice sl-alice,sl-team 0,1,2,3,4,5,6,7" for i in range(4)]
    assert sorted(said.stdout.splitlines()) == expected, said.stderr

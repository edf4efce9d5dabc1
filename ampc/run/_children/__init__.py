"""The folder that ``ampc.run.hook`` puts on PYTHONPATH. It holds the ``sitecustomize`` of processes that a script starts, and nothing else."""

"""Trains by Kubeflow's SDK, with the runtime of `docs/trainer.md`."""

from kubeflow.common.types import KubernetesBackendConfig
from kubeflow.trainer import CustomTrainer, TrainerClient


def train(steps):
    import os
    import time

    for step in range(steps):
        print(f"process {os.environ['JAX_PROCESS_ID']} step {step}", flush=True)
        time.sleep(1)


client = TrainerClient(backend_config=KubernetesBackendConfig(namespace="default"))
print([runtime.name for runtime in client.list_runtimes()])
name = client.train(runtime="jax", trainer=CustomTrainer(func=train, func_args={"steps": 10}, num_nodes=2))
print(client.wait_for_job_status(name, status={"Running"}, timeout=300, polling_interval=1).status)
job = client.wait_for_job_status(name, timeout=300)
print(job.status, *(f"{step.name}:{step.status}" for step in job.steps))
for line in client.get_job_logs(name, step="node-1"):
    print(line)
for event in client.get_job_events(name):
    print(event.reason, event.message)
client.delete_job(name)
print([job.name for job in client.list_jobs()])

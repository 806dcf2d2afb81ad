import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = Mesh(np.array(jax.devices()), ("data",))
sharded, replicated = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


def init():
    return {"w": jax.random.normal(jax.random.key(1), (32, 1)), "step": jnp.zeros((), jnp.int32)}


def update(state, points, wanted):
    loss, grad = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(points @ w) - wanted) ** 2))(state["w"])
    return {"w": state["w"] - 0.5 * grad, "step": state["step"] + 1}, loss


state = jax.jit(init, out_shardings=replicated)()
update = jax.jit(update, out_shardings=replicated)
truth = np.random.default_rng(1).standard_normal((32, 1), np.float32)
options = ocp.CheckpointManagerOptions(max_to_keep=3, save_interval_steps=4)
with ocp.CheckpointManager(os.path.abspath("out"), options=options) as manager:
    if manager.latest_step() is not None:
        state = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(state))
    for step in range(int(state["step"]) + 1, 17):
        begun = time.time()
        points = np.random.default_rng((step, jax.process_index())).standard_normal((8, 32), np.float32)
        batch = [jax.make_array_from_process_local_data(sharded, part) for part in (points, np.tanh(points @ truth))]
        state, loss = update(state, *batch)
        loss = float(loss)
        time.sleep(0.3)   # stands for a larger model
        if jax.process_index() == 0:
            print(f"completed step: {step}, seconds: {time.time() - begun:.3f}, loss: {loss:.6f}", flush=True)
        manager.save(step, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()

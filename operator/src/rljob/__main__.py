"""The operator process: `python -m rljob`. It wires the parts, holds the Lease, and exits when any part ends.

Order: settings, log, health server, Lease, store, then workers, resync and watches concurrently. SIGTERM releases the
Lease and exits with 0. Any other end of a part (a lost Lease, a watch that died, a bug) exits with 1, and the restart
of the process recovers: running jobs are not affected either way.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import aiohttp
import kopf

from rljob.cluster.kube import KubeCluster, load_configuration
from rljob.cluster.limiter import TokenBucket
from rljob.cluster.ray import RayClient
from rljob.cluster.token import TokenKey
from rljob.cluster.watch_session import BoundedResponse
from rljob.config import Config, ConfigError, read_config
from rljob.control.accelerator_files import AcceleratorsError, read_folder
from rljob.control.builtin_recipes import BuiltIns, owner_label
from rljob.control.clock import SystemClock
from rljob.control.execute import Hooks
from rljob.control.lease import LeaseHolder, OwnThread, ThreadedLease
from rljob.control.memory_budget import MemoryBudget
from rljob.control.pure_core import Core
from rljob.control.reconciler import Reconciler
from rljob.control.resync import Resync
from rljob.control.worker import work
from rljob.core.scheduling.port_blocks import SHARES, PortPool
from rljob.handlers import watch
from rljob.launchers import LAUNCHER
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN
from rljob.telemetry.health import HealthServer
from rljob.telemetry.log import Log, configure
from rljob.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kubernetes.aio.client.configuration import Configuration

GC_PRIMING = 50_000
"""Additional objects before a garbage collection, instead of 700. A LIST of a thousand jobs creates millions of dicts
and strings without a single cycle; scanning them repeatedly took two fifths of the time to read it."""
GC_WATCHING = 5_000
"""The same after priming. kopf's view of each watched object is a cycle (Body and Patch) that holds the whole manifest
until it is collected. With the bound above that would be up to 17 MiB, and a process does not return its peak memory.
"""

EXIT_OK = 0
EXIT_BROKEN = 1
EXIT_CONFIG = 64
"""EX_USAGE of sysexits.h, as in the runtime."""

log = Log("rljob")


@dataclass
class Operator:
    """The parts of a running process."""

    config: Config
    metrics: Metrics
    lease: ThreadedLease
    reconciler: Reconciler
    resync: Resync
    leads: bool = False

    async def lead(self) -> NoReturn:
        """Take the Lease and work until a part ends or the caller cancels."""
        await self.lease.acquire()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.lease.hold(), name="lease")
                await self.resync.prime()
                gc.set_threshold(GC_WATCHING)
                self.leads = True
                group.create_task(work(self.reconciler, self.config.workers), name="workers")
                group.create_task(self.resync.run(), name="resync")
                if self.config.recipes_folder:
                    group.create_task(self._built_ins().keep(), name="built-in recipes")
                group.create_task(watch(self.resync, self.reconciler.feed, self._login), name="watches")
                log.info("Leading", workers=self.config.workers, jobs=len(self.resync.reconciler.store.job_keys()))
        finally:
            self.leads = False
            await self.lease.release()
        raise AssertionError("the parts of an operator never end by themselves")

    def _built_ins(self) -> BuiltIns:
        owner = owner_label(self.config.lease_namespace, self.config.lease_name)
        return BuiltIns(self.reconciler.cluster, Path(self.config.recipes_folder), owner)

    def live(self) -> str | None:
        """Return what is stuck; the answer itself proves that the event loop runs."""
        age, limit = self.resync.age_seconds(), 2 * self.config.resync_seconds + 60
        if self.leads and age is not None and age > limit:
            return f"the last resync is {age:.0f} s old, more than {limit} s"
        return None

    def ready(self) -> str | None:
        """Return why this process does not reconcile."""
        return None if self.leads else "standby: another process holds the Lease, or the store is not primed"

    async def _login(self) -> kopf.AiohttpSession:
        return bounded_session(await connection_info(await load_configuration(self.config.kubeconfig)))


@contextlib.asynccontextmanager
async def assemble(config: Config, accelerators: AcceleratorTable) -> AsyncIterator[Operator]:
    """Create the parts, and close their connections at the end."""
    metrics, clock = Metrics(), SystemClock()
    key = TokenKey.from_file(config.token_key_file)
    limiter = TokenBucket(config.api_requests_per_second, config.api_burst, clock.monotonic)
    cluster = await connect(config, metrics, limiter)
    ray = RayClient(key, metrics)
    blocks = config.host_ports_blocks
    pool = PortPool(
        config.lease_namespace,
        f"{config.lease_name}-ports",
        config.host_ports_first,
        blocks,
        share=max(1, blocks // SHARES),
    )
    async with OwnThread() as thread:
        # A connection belongs to the event loop on which it was made.
        own = await thread.run(connect(config, metrics, limiter))
        lease = LeaseHolder(own, clock, metrics, config.lease_namespace, config.lease_name, config.identity)
        cluster.fence = ray.fence = lease.expect_held
        reconciler = Reconciler.build(
            cluster,
            ray,
            clock,
            key,
            core=Core(LAUNCHER, accelerators),
            metrics=metrics,
            identity=config.identity,
            hooks=Hooks(doubt=lease.doubt),
            port_pool=pool,
            device_info_namespace=config.device_info_namespace,
            node_info_namespace=config.node_info_namespace,
            public_faults_namespace=config.public_faults_namespace,
            partial_seconds=config.partial_seconds,
            closed_namespaces=frozenset(filter(None, config.closed_namespaces.split(","))),
            workers=config.workers,
            budget=MemoryBudget.of_container(config.memory_limit, shared=not config.namespace),
        )
        resync = Resync(reconciler, config.resync_seconds, config.identity, config.namespace or None)
        try:
            yield Operator(config, metrics, ThreadedLease(lease, thread), reconciler, resync)
        finally:
            await reconciler.observer.heads.close()
            await ray.close()
            await cluster.close()
            await thread.run(own.close())


async def connect(config: Config, metrics: Metrics, limiter: TokenBucket) -> KubeCluster:
    """Return an adapter of the API server for the running event loop."""
    return KubeCluster(await load_configuration(config.kubeconfig), metrics, limiter)


async def run(config: Config, accelerators: AcceleratorTable) -> int:
    """Run the operator until SIGTERM or until a part fails; return the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with (
        assemble(config, accelerators) as operator,
        HealthServer(config.http_port, operator.live, operator.ready, operator.metrics),
    ):
        leading = asyncio.create_task(operator.lead(), name="lead")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        asked = not leading.done()
        leading.cancel()
        (ended,) = await asyncio.gather(leading, return_exceptions=True)
    if asked and isinstance(ended, asyncio.CancelledError):
        log.info("Stopped on request")
        return EXIT_OK
    log.failure("The operator exits", ended)
    return EXIT_BROKEN


async def connection_info(configuration: Configuration) -> kopf.ConnectionInfo:
    """Give kopf the same credentials that the operator's own client uses."""
    header: str = await configuration.get_api_key_with_prefix("BearerToken") or ""
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        token=header.split(" ", 1)[-1] or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
        trust_env=(configuration.client_session_kwargs or {}).get("trust_env", False),
    )


def bounded_session(info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """Return the session that kopf would make of these credentials (kopf/_cogs/clients/auth.py, `APIContext`)."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=BoundedResponse,
    )
    return kopf.AiohttpSession(server=info.server, default_namespace=info.default_namespace, aiohttp_session=session)


def main() -> int:
    """Read the settings and run."""
    # Imported objects stay alive, so no collection needs to scan them again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_PRIMING)
    try:
        config = read_config(sys.argv[1:], os.environ)
    except ConfigError as error:
        sys.stderr.write(f"rljob: {error}\n")
        return EXIT_CONFIG
    configure(config.log_level)
    try:
        accelerators = read_folder(Path(config.accelerators_folder)) if config.accelerators_folder else BUILT_IN
    except AcceleratorsError as error:
        sys.stderr.write("".join(f"rljob: {line}\n" for line in str(error).splitlines()))
        return EXIT_CONFIG
    try:
        return asyncio.run(run(config, accelerators.with_operator_image(config.runtime_image)))
    except ValueError as error:
        log.failure("The operator cannot start", error)
        return EXIT_CONFIG


if __name__ == "__main__":
    sys.exit(main())

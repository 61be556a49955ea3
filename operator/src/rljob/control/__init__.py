"""The machinery around the pure core: store, key queue, worker, resync and lease; asyncio, no kopf, no HTTP."""
